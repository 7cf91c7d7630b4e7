// Errors of the server, as exceptions that a caller can act on.

import { fileURLToPath } from "node:url";
import * as grpc from "@grpc/grpc-js";
import * as protoLoader from "@grpc/proto-loader";

const DOMAIN = "sonorant.tts.v1"; // in ErrorInfo: the error comes from a Sonorant server itself
const STARTING = "ENGINE_STARTING"; // ErrorInfo.reason of a server that loads its models

/** How long a session without a server, or a call that waits for one, goes on trying. */
export const RECONNECT_MS = 20_000;
export const STARTING_MS = 120_000; // and for up to so long while a server answers that it is starting

interface Explained { domain: string; reason: string; fields: Record<string, string>; retryAfterMs: number | undefined; requestId: string }
interface Any { type_url?: string; value?: Buffer | Uint8Array | string }
interface Status { code?: number; message?: string; details?: Any[] }

const messages = protoLoader.loadSync(["google/rpc/status.proto", "google/rpc/error_details.proto"], {
  longs: Number, defaults: true, includeDirs: [fileURLToPath(new URL("../proto", import.meta.url))],
});

/**
 * `code` is gRPC's, the message says what was wrong and what to do. `reason` is a word for programs, such as
 * ENGINE_OVERLOADED; `fields` says which fields are wrong; `retryAfterMs` when to try again, if the server says so; `requestId` finds the call in
 * the server's log.
 */
export class SpeechError extends Error {
  readonly reason: string;
  readonly fields: Record<string, string>;
  readonly retryAfterMs: number | undefined;
  readonly requestId: string;

  constructor(readonly code: grpc.status, message: string, explained: Partial<Explained> = {}) {
    super(message);
    this.name = "SpeechError";
    this.reason = explained.reason ?? "";
    this.fields = explained.fields ?? {};
    this.retryAfterMs = explained.retryAfterMs;
    this.requestId = explained.requestId ?? "";
  }

  /** The error of an utterance: `done.error`. */
  static ofStatus({ code = grpc.status.UNKNOWN, message = "", details = [] }: Status): SpeechError {
    return new SpeechError(code, message, explained(details));
  }

  /** `target`: which was called. */
  static of(error: grpc.ServiceError, target: string): SpeechError {
    const known = explain(error);
    if (error.code !== grpc.status.UNAVAILABLE || known.domain === DOMAIN) return new SpeechError(error.code, error.details || error.message, known);
    return new SpeechError(error.code, `no answer from a Sonorant server at ${target} (${error.details}); ${hint(target, error.details)}`);
  }
}

/** Whether a server has answered that it is still starting. */
export function isStarting(error: grpc.ServiceError): boolean {
  return explain(error).reason === STARTING;
}

/** Whether the connection or the server is lost, as opposed to a server that refuses something: those explain it. */
export function isLost(error: grpc.ServiceError): boolean {
  return error.code === grpc.status.UNAVAILABLE || explain(error).domain !== DOMAIN;
}

/** Whether the server is full now, but may have room soon. */
export function isFull(error: grpc.ServiceError): boolean {
  return error.code === grpc.status.RESOURCE_EXHAUSTED;
}

/** For how long a call that no server has taken yet is made again. `whenDown`: also while nobody answers at all. */
export function waitMs(error: grpc.ServiceError, whenDown: boolean): number {
  if (isStarting(error)) return STARTING_MS;
  return whenDown && error.code === grpc.status.UNAVAILABLE ? RECONNECT_MS : 0;
}

function explain(error: grpc.ServiceError): Explained {
  const [status] = error.metadata?.get("grpc-status-details-bin") ?? [];
  return explained(Buffer.isBuffer(status) ? decode<Status>("google.rpc.Status", status).details : []);
}

function explained(details: Any[] = []): Explained {
  const found: Explained = { domain: "", reason: "", fields: {}, retryAfterMs: undefined, requestId: "" };
  for (const { type_url: url = "", value } of details) {
    const type = url.slice(url.indexOf("/") + 1);
    if (!Buffer.isBuffer(value)) continue;
    if (type === "google.rpc.ErrorInfo") {
      const { domain, reason } = decode<{ domain: string; reason: string }>(type, value);
      Object.assign(found, { domain, reason });
    }
    if (type === "google.rpc.RetryInfo") {
      const { retryDelay } = decode<{ retryDelay: { seconds?: number; nanos?: number } | null }>(type, value);
      found.retryAfterMs = (retryDelay?.seconds ?? 0) * 1000 + (retryDelay?.nanos ?? 0) / 1e6;
    }
    if (type === "google.rpc.RequestInfo") found.requestId = decode<{ requestId: string }>(type, value).requestId;
    if (type === "google.rpc.BadRequest") {
      const { fieldViolations } = decode<{ fieldViolations?: { field: string; description: string }[] }>(type, value);
      for (const { field, description } of fieldViolations ?? []) found.fields[field] = description;
    }
  }
  return found;
}

function decode<T>(type: string, data: Buffer): T {
  return (messages[type] as protoLoader.MessageTypeDefinition<object, object>).deserialize(data) as T;
}

/** What to do about a connection that failed, judged by gRPC's `details` about it. */
function hint(target: string, details: string): string {
  if (/^https?:/.test(target)) return `give host and port instead of a URL: ${target.replace(/^https?:\/\//, "")}`;
  if (!target.includes(":")) return `give the port, too: ${target}:50051`;
  if (/ECONNREFUSED/.test(details)) return "start one with: sonorant-server";
  if (/resolution/.test(details)) return "there is no host of this name";
  return "it was stopped, or one side uses TLS and the other does not: see `credentials` of SpeechClient";
}
