// Text word by word from a pipe, speech into a WAV file, and when each word is heard.
//
//     npm install
//     echo "Words may come one by one." | node speak.js speech.wav 127.0.0.1:50051
import { readFileSync, writeFileSync } from "node:fs";
import { argv, env, stdin } from "node:process";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const [path, server = "127.0.0.1:50051"] = argv.slice(2);
// The whole contract in one file: no .proto files, no generated code.
const contract = readFileSync(new URL("../../../proto/released.binpb", import.meta.url));
const options = { keepCase: true, enums: String, oneofs: true };
const { sonorant } = grpc.loadPackageDefinition(loader.loadFileDescriptorSetFromBuffer(contract, options));
const client = new sonorant.tts.v1.TextToSpeechService(server, grpc.credentials.createInsecure());
const metadata = new grpc.Metadata();
if (env.SONORANT_CLIENT_API_KEY) metadata.set("authorization", `Bearer ${env.SONORANT_CLIENT_API_KEY}`);

const call = client.Speak(metadata);
const audio = [];
call.on("data", (response) => {
  if (response.payload === "audio") audio.push(response.audio.data);
  if (response.payload === "marks")
    for (const { text, start_ms } of response.marks.marks) console.log(`${start_ms} ms  ${text}`);
  if (response.payload === "done" && response.done.error) console.error(response.done.error.message);
});
call.on("error", (error) => console.error(error.details));
call.on("end", () => writeFileSync(path, wav(Buffer.concat(audio), 24000)));

// The config first, then text as it comes. `call.write({ cancel: {} })` would be a barge-in.
const synthesis = { audio: { encoding: "AUDIO_ENCODING_PCM_S16LE", sample_rate_hz: 24000 } };
call.write({ config: { synthesis, timestamps: "TIMESTAMP_MODE_WORD" } });
for await (const text of stdin.setEncoding("utf8")) call.write({ text });
call.end(); // all that was sent is spoken, then the call ends

function wav(pcm, rate) {
  const header = Buffer.from("RIFF....WAVEfmt " + ".".repeat(20) + "data....", "latin1");
  header.writeUInt32LE(36 + pcm.length, 4);
  [[16, 16, 4], [1, 20, 2], [1, 22, 2], [rate, 24, 4], [2 * rate, 28, 4], [2, 32, 2], [16, 34, 2], [pcm.length, 40, 4]]
    .forEach(([value, at, size]) => header.writeUIntLE(value, at, size));
  return Buffer.concat([header, pcm]);
}
