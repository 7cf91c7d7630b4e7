// Copies the contract into the package, and makes its TypeScript types. Runs in a checkout of the repository.
import { execFileSync } from "node:child_process";
import { cpSync, readdirSync, rmSync } from "node:fs";

rmSync("proto", { recursive: true, force: true });
rmSync("src/contract", { recursive: true, force: true });
const source = "../../proto/sonorant/tts/v1";
for (const name of readdirSync(source).filter((name) => name.endsWith(".proto"))) {
  cpSync(`${source}/${name}`, `proto/sonorant/tts/v1/${name}`);
}
cpSync("third_party", "proto", { recursive: true });
const options = ["--longs=Number", "--enums=String", "--defaults", "--oneofs", "--grpcLib=@grpc/grpc-js"];
const files = [
  "sonorant/tts/v1/text_to_speech_service.proto",
  "sonorant/tts/v1/dictionary_service.proto",
  "google/rpc/error_details.proto",
];
execFileSync(
  "node_modules/.bin/proto-loader-gen-types",
  [...options, "--targetFileExtension=.ts", "--importFileExtension=.js", "--includeDirs=proto", "--outDir=src/contract", ...files],
  { stdio: "inherit" },
);
