/** Talks to the REST API. Every failure is a `Failure`: the server's problem, or what kept us from asking. */

import createClient from "openapi-fetch";
import { inert } from "../text/inert";
import type { paths } from "./schema";

/** RFC 9457, as every failure of the API is told. */
interface Problem {
  title: string;
  detail: string;
  status: number;
  code: string;
  requestId?: string;
  errors?: FieldFault[];
}

export interface FieldFault {
  field: string;
  message: string;
  hint?: string;
  pointer?: string;
}

export const api = createClient<paths>();

export class Failure extends Error {
  constructor(
    readonly title: string,
    detail: string,
    /** HTTP status; 0: no answer at all. */
    readonly status: number,
    readonly code: string,
    readonly requestId: string | null,
    readonly errors: FieldFault[] = [],
  ) {
    super(detail);
  }
}

type Answered<T> = { data?: T; error?: unknown; response: Response };

/** The body of an answer. Throws Failure. */
export async function body<T>(call: Promise<Answered<T>>): Promise<T> {
  let answered: Answered<T>;
  try {
    answered = await call;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Failure("No answer", "The server cannot be reached.", 0, "unreachable", null);
  }
  const { data, error, response } = answered;
  if (response.ok && data !== undefined) return inert(data);
  throw failure(inert(error), response);
}

function failure(error: unknown, response: Response): Failure {
  const requestId = response.headers.get("X-Request-Id");
  if (isProblem(error)) {
    return new Failure(error.title, error.detail, error.status, error.code, error.requestId ?? requestId, error.errors);
  }
  const text = `The server answered ${response.status} ${response.statusText}`.trim();
  return new Failure("Unexpected answer", text, response.status, "unexpected", requestId);
}

function isProblem(value: unknown): value is Problem {
  return typeof value === "object" && value !== null && "code" in value && "detail" in value;
}
