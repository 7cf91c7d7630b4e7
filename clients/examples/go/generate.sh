#!/bin/sh
# The stubs of the contract as the Go package pb. proto/released.binpb has the .proto files with all that they import.
set -eu
cd "$(dirname "$0")"
mkdir -p pb
options=module=sonorant-example
files=
for file in audio explain latency speak synthesis text_to_speech_service voice voice_service; do
  options="$options,Msonorant/tts/v1/$file.proto=sonorant-example/pb"
  files="$files sonorant/tts/v1/$file.proto"
done
# shellcheck disable=SC2086 # one word per file
protoc --descriptor_set_in=../../../proto/released.binpb --go_out=. --go_opt="$options" --go-grpc_out=. --go-grpc_opt="$options" $files
