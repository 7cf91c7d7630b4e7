#!/bin/sh
# Speech with curl alone, through the gateway: sh curl.sh http://127.0.0.1:8000 FOLDER
set -eu
url=$1 out=$2

curl --fail-with-body --silent "$url/v1/audio/voices" --output "$out/voices.json"

# A file.
curl --fail-with-body --silent "$url/v1/audio/speech" --output "$out/hello.mp3" \
  --json '{"model": "tts-1", "voice": "default", "input": "Hello, world."}'

# Samples as they are made, for whatever plays them: curl ... | aplay --format=S16_LE --rate=24000
curl --fail-with-body --silent --no-buffer "$url/v1/audio/speech" --output "$out/hello.pcm" \
  --json '{"model": "tts-1", "voice": "default", "input": "Hello, world.", "response_format": "pcm"}'

# Server-sent events.
curl --fail-with-body --silent --no-buffer "$url/v1/audio/speech" --output "$out/hello.sse" \
  --json '{"model": "tts-1", "voice": "default", "input": "Hello, world.", "response_format": "pcm", "stream_format": "sse"}'
