// Errors of the server, as exceptions that a caller can act on.

import * as grpc from "@grpc/grpc-js";

const DOMAIN = Buffer.from("sonorant.tts.v1"); // in ErrorInfo: the error comes from a Sonorant server itself

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

/** Whether the connection or the server is lost, as opposed to a server that refuses something: those explain it. */
export function isLost(error: grpc.ServiceError): boolean {
  if (error.code === grpc.status.UNAVAILABLE) return true;
  const explained = error.metadata?.get("grpc-status-details-bin") ?? [];
  return !explained.some((detail) => Buffer.isBuffer(detail) && detail.includes(DOMAIN));
}
