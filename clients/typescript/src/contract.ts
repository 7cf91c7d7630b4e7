// The contract of the server, loaded from the .proto files of this package. Types are generated from the same files.

import { fileURLToPath } from "node:url";
import * as grpc from "@grpc/grpc-js";
import * as protoLoader from "@grpc/proto-loader";
import type { ProtoGrpcType as ErrorTypes } from "./contract/error_details.js";
import type { ProtoGrpcType as DictionaryTypes } from "./contract/dictionary_service.js";
import type { ProtoGrpcType } from "./contract/text_to_speech_service.js";

export type { AudioChunk__Output as AudioChunk } from "./contract/sonorant/tts/v1/AudioChunk.js";
export type { Dictionary__Output as Dictionary } from "./contract/sonorant/tts/v1/Dictionary.js";
export type { GetUsageResponse__Output as GetUsageResponse } from "./contract/sonorant/tts/v1/GetUsageResponse.js";
export type { Mark__Output as Mark } from "./contract/sonorant/tts/v1/Mark.js";
export type { SpeakConfig } from "./contract/sonorant/tts/v1/SpeakConfig.js";
export type { SpeakRequest } from "./contract/sonorant/tts/v1/SpeakRequest.js";
export type { SpeakResponse__Output as SpeakResponse } from "./contract/sonorant/tts/v1/SpeakResponse.js";
export type { SynthesisConfig } from "./contract/sonorant/tts/v1/SynthesisConfig.js";
export type { SynthesizeResponse__Output as SynthesizeResponse } from "./contract/sonorant/tts/v1/SynthesizeResponse.js";
export type { UtteranceDone__Output as UtteranceDone } from "./contract/sonorant/tts/v1/UtteranceDone.js";
export type { TextToSpeechServiceClient } from "./contract/sonorant/tts/v1/TextToSpeechService.js";

const includeDirs = [fileURLToPath(new URL("../proto", import.meta.url))];
const options = { longs: Number, enums: String, defaults: true, oneofs: true, includeDirs };

function load<T>(file: string): T {
  return grpc.loadPackageDefinition(protoLoader.loadSync(file, options)) as unknown as T;
}

export const { TextToSpeechService } = load<ProtoGrpcType>("sonorant/tts/v1/text_to_speech_service.proto").sonorant.tts.v1;
export const { DictionaryService } = load<DictionaryTypes>("sonorant/tts/v1/dictionary_service.proto").sonorant.tts.v1;
export type { ErrorTypes };
