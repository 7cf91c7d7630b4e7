"""The page at / in a real Chromium, as somebody uses it."""

import json
import os
import shutil
import time
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium") or os.environ.get("CHROMIUM", "")
ARGUMENTS = [
    "--no-sandbox",
    "--autoplay-policy=no-user-gesture-required",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
]
TEXT = "The quick brown fox jumps over the lazy dog, and then it rests in the warm evening sun by the old river. "
PLAYED = "sonorant.player.played"
COLOURS = """(() => {
    const canvas = document.getElementById('spectrogram');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
})()"""

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium here: apt-get install chromium-headless-shell")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, url: str, key: str) -> Iterator[Page]:
    complaints: list[str] = []
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.on("pageerror", lambda error: complaints.append(error.message))
    page.goto(url)
    page.locator("summary", has_text="Key").click()
    page.get_by_label("API key").fill(key)
    page.get_by_label("API key").blur()
    expect(page.get_by_role("radio").first).to_be_visible()
    yield page
    page.close()
    assert not complaints


def composer(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Type, and it speaks")


def eventually(page: Page, condition: str, timeout_s: float = 30.0) -> None:
    """As `wait_for_function`, which the page's Content-Security-Policy does not let work."""
    deadline_s = time.monotonic() + timeout_s
    while not page.evaluate(condition):
        assert time.monotonic() < deadline_s, condition
        page.wait_for_timeout(20)


def test_words_sound_before_the_text_is_complete_and_light_up(page: Page) -> None:
    composer(page).click()
    for word in (TEXT * 10).split():
        page.keyboard.type(f"{word} ", delay=30)
        if page.evaluate(f"{PLAYED} > 4800 && sonorant.said[0].state === 'open'"):
            break
    else:
        raise AssertionError("nothing was heard while the text was typed")
    expect(page.locator("#mirror .heard").first).to_have_text("The")
    expect(page.locator("#state")).to_have_text("Speaking")
    expect(page.locator("#latency")).to_contain_text("ms")
    expect(page.locator("#queue")).to_contain_text("s")
    assert page.evaluate(COLOURS) > 4, "a spectrogram is more than one colour"
    expect(page.locator("#mirror")).to_have_text(composer(page).input_value())
    page.keyboard.press("Escape")


def test_stop_is_at_once_and_says_what_was_heard(page: Page) -> None:
    composer(page).fill(TEXT * 4)
    page.get_by_role("button", name="Speak").click()
    eventually(page, "sonorant.said[0]?.words.length > 6 && sonorant.player.played > 24000")
    page.get_by_role("button", name="Stop").click()
    played = page.evaluate(PLAYED)
    expect(page.locator("#heard")).to_contain_text("Heard until the stop: “The quick")
    heard = page.locator("#heard").inner_text().split("“")[1].rstrip("”")
    assert (TEXT * 4).startswith(heard) and len(heard) < len(TEXT)
    expect(page.locator("#state")).to_have_text("Ready")
    assert page.evaluate(PLAYED) - played < 2400
    expect(page.locator("#mirror .unheard").first).to_be_visible()


def test_changed_text_is_said_anew_from_there(page: Page) -> None:
    text = composer(page)
    text.fill("One two three four five six seven. ")
    eventually(page, f"{PLAYED} > 2400")
    text.fill("One two nine ten eleven. ")
    eventually(page, "sonorant.said.at(-1).text.startsWith('nine ten')")


def test_it_is_used_by_keyboard_alone(page: Page) -> None:
    composer(page).fill("")
    page.get_by_role("checkbox", name="while I type").uncheck()
    composer(page).focus()
    page.keyboard.type("Hello there, everybody.")
    assert page.evaluate("sonorant.said.length") == 0
    page.keyboard.press("Control+Enter")
    eventually(page, f"{PLAYED} > 2400")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    page.get_by_role("tab", name="Voices").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Clone")).to_be_focused()
    expect(page.get_by_role("tabpanel", name="Clone")).to_be_visible()


def test_what_the_server_refuses_is_said(page: Page) -> None:
    page.get_by_role("tab", name="Design").click()
    page.get_by_label("Describe the voice").fill("A warm, low voice.")
    composer(page).fill("Hello there.")
    page.get_by_role("button", name="Speak").click()
    expect(page.locator("#error")).to_contain_text("VoiceDesign")


def test_a_recording_from_the_microphone_is_there_to_be_cloned(page: Page) -> None:
    page.get_by_role("tab", name="Clone").click()
    page.get_by_role("button", name="Record").click()
    expect(page.get_by_role("button", name="Stop recording")).to_be_visible()
    eventually(page, "document.getElementById('level').value > 0")
    page.get_by_role("button", name="Stop recording").click()
    eventually(page, "document.getElementById('sample').duration > 0.1")


def test_a_file_is_cloned_and_kept_and_seeds_are_sent(page: Page, url: str, key: str) -> None:
    body = {"input": "The weather is fine today.", "response_format": "wav"}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/audio/speech", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as response:
        recording = {"name": "voice.wav", "mimeType": "audio/wav", "buffer": response.read()}
    sent: list[dict[str, object]] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda message: sent.append(json.loads(message))))
    page.get_by_role("tab", name="Clone").click()
    page.locator("#file").set_input_files(recording)
    eventually(page, "document.getElementById('sample').duration > 1")
    page.get_by_role("checkbox", name="new each time").uncheck()
    page.get_by_label("Seed", exact=True).fill("7")
    composer(page).fill("Hello there.")
    page.get_by_role("button", name="Speak").click()
    eventually(page, f"{PLAYED} > 4800")
    config = next(message for message in sent if message["type"] == "session.config")
    assert (config["task_type"], config["seed"]) == ("Base", 7)
    page.locator("summary", has_text="Keep").click()
    page.get_by_label("Name").fill("Anna")
    page.get_by_label("Consent").fill("Anna agreed")
    page.get_by_label("Preview text").fill("I am Anna.")
    page.get_by_role("button", name="Keep").click()
    expect(page.get_by_role("radio", name="Anna")).to_be_checked()
    preview = page.locator("#preview")
    expect(preview).to_have_text("I am Anna.")
    expect(preview).to_be_visible()
    page.get_by_role("radio").first.check()
    expect(preview).to_have_text("")
    page.get_by_role("radio", name="Anna").check()
    expect(preview).to_have_text("I am Anna.")
    composer(page).fill("Hello again.")
    page.get_by_role("button", name="Speak").click()
    eventually(page, "sonorant.said.at(-1)?.text === 'Hello again.' && sonorant.said.at(-1).state === 'done'")
    assert sent[-1]["type"] == "input.done" and "anna" in [message.get("voice") for message in sent]


def test_everything_has_a_name_and_a_phone_needs_no_sideways_scroll(browser: Browser, url: str) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 740}, reduced_motion="reduce")
    page.goto(url)
    nameless = page.evaluate(
        """[...document.querySelectorAll('input, textarea, button, canvas, meter')].filter(
            (each) => !(each.labels?.length || each.textContent.trim() || each.getAttribute('aria-label'))
        ).map((each) => each.outerHTML)"""
    )
    assert nameless == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.goto(f"{url}/docs")
    expect(page.get_by_role("main")).to_contain_text("SpeechRequest")
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.close()
