"""POST /tts/bytes."""

from aiohttp import web

from sonorant.gateway.cartesia.request import Generation
from sonorant.gateway.clip import answer_with_bytes
from sonorant.gateway.encoders import FORMATS, encoder, raw_encoder
from sonorant.gateway.errors import Refusal
from sonorant.gateway.web.bodies import read_model
from sonorant.gateway.web.context import CALL, CATALOGS, CONFIG
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeStreamRequest


async def tts_bytes(request: web.Request) -> web.StreamResponse:
    body = await read_model(request, Generation)
    body.check_text()
    output = body.output_format
    config = body.to_config(await request.app[CATALOGS].get(request[CALL]), request.app[CONFIG].cartesia_text_format)
    upstream = SynthesizeStreamRequest(config=config, text=body.transcript)
    if output.container == "mp3":
        if output.encoding != "pcm_s16le":
            raise Refusal(400, "output_format: the container mp3 needs encoding pcm_s16le", param="output_format")
        encode = encoder("mp3", output.sample_rate)
    else:
        encode = raw_encoder(output.encoding, output.sample_rate, wav=output.container == "wav")
    content_type = "audio/pcm" if output.container == "raw" else FORMATS[output.container].content_type
    return await answer_with_bytes(request, upstream, encode, content_type)
