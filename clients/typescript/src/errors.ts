// Errors of the server, as exceptions that a caller can act on.

import * as grpc from "@grpc/grpc-js";

const DOMAIN = Buffer.from("sonorant.tts.v1"); // in ErrorInfo: the error comes from a Sonorant server itself
const STARTING = Buffer.from("ENGINE_STARTING"); // ErrorInfo.reason of a server that loads its models

/** `code` is gRPC's, the message says what was wrong and what to do. */
export class SpeechError extends Error {
  constructor(readonly code: grpc.status, message: string) {
    super(message);
    this.name = "SpeechError";
  }

  static of(error: grpc.ServiceError): SpeechError {
    return new SpeechError(error.code, error.details || error.message);
  }
}

/** Whether a server has answered that it is still starting. */
export function isStarting(error: grpc.ServiceError): boolean {
  return explains(error, STARTING);
}

/** Whether the connection or the server is lost, as opposed to a server that refuses something: those explain it. */
export function isLost(error: grpc.ServiceError): boolean {
  if (error.code === grpc.status.UNAVAILABLE) return true;
  return !explains(error, DOMAIN);
}

function explains(error: grpc.ServiceError, what: Buffer): boolean {
  const explained = error.metadata?.get("grpc-status-details-bin") ?? [];
  return explained.some((detail) => Buffer.isBuffer(detail) && detail.includes(what));
}
