/** Types of the browser client of layby. What it does is documented in client.js. */

/** JSON as the tools get it: whatever the model wrote. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** A part of a message or of a tool's output. */
export type ContentPart =
  | { type: "input_text"; text: string }
  | { type: "input_image"; image_url: string; detail?: string }
  | { type: "input_image"; file_id: string; detail?: string }
  | { type: "input_file"; file_data: string; filename?: string }
  | { type: "input_file"; file_url: string; filename?: string }
  | { type: "input_file"; file_id: string; filename?: string };

/** What an assistant's message consists of. */
export type OutputPart = { type: "output_text"; text: string } | { type: "refusal"; refusal: string };

interface ItemHead {
  id: string;
  response_id: string;
  /** Unix seconds. */
  created_at: number;
}

export interface UserMessage extends ItemHead {
  type: "message";
  role: "user";
  content: ContentPart[];
  status: "completed" | "queued";
}

export interface AssistantMessage extends ItemHead {
  type: "message";
  role: "assistant";
  content: OutputPart[];
  status: "in_progress" | "completed" | "incomplete";
}

export interface Reasoning extends ItemHead {
  type: "reasoning";
  summary: { type: "summary_text"; text: string }[];
  status: "in_progress" | "completed" | "incomplete";
}

export interface FunctionCall extends ItemHead {
  type: "function_call";
  call_id: string;
  name: string;
  /** The model's own text, which need not be JSON. */
  arguments: string;
  status: "in_progress" | "action_required" | "completed" | "cancelled" | "incomplete";
}

export interface FunctionCallOutput extends ItemHead {
  type: "function_call_output";
  call_id: string;
  output: string | ContentPart[];
  is_error?: boolean;
  status: "completed" | "cancelled" | "expired";
}

export interface ErrorItem extends ItemHead {
  type: "error";
  code: string;
  message: string;
  status: "completed";
}

/** A unit of the transcript. */
export type Item = UserMessage | AssistantMessage | Reasoning | FunctionCall | FunctionCallOutput | ErrorItem;

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  total_tokens: number;
  cached_tokens: number;
  reasoning_tokens: number;
}

export interface Failure {
  code: string;
  message: string;
}

/** A turn. */
export interface Response {
  id: string;
  object: "response";
  status: "in_progress" | "completed" | "failed" | "incomplete" | "cancelled";
  model: string;
  output: Item[];
  usage: Usage | null;
  error: Failure | null;
  incomplete_details: { reason: string } | null;
  created_at: number;
  completed_at: number | null;
}

export type SessionStatus = "idle" | "running" | "waiting" | "failed";

export interface Snapshot {
  id: string;
  object: "session";
  status: SessionStatus;
  agent_id: string;
  agent_name: string;
  model: string;
  title: string | null;
  labels: Record<string, string>;
  archived: boolean;
  created_at: number;
  updated_at: number;
  expires_at: number | null;
  active_response_id: string | null;
  last_response: {
    id: string;
    status: "completed" | "incomplete" | "failed" | "cancelled";
    error: Failure | null;
  } | null;
  last_task_error: Failure | null;
  pending_tool_calls: {
    call_id: string;
    name: string;
    arguments: string;
    response_id: string;
    created_at: number;
    expires_at: number | null;
  }[];
  queue: { item_id: string; response_id: string; created_at: number }[];
  usage: Usage;
  cursor: string;
  subscribers: number;
  items: Item[];
}

export interface ItemsPage {
  object: "list";
  data: Item[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}

interface OfSession {
  session_id: string;
  conversation_id: string;
}

interface OfText {
  item_id: string;
  output_index: number;
}

interface EventData {
  "session.status": OfSession & { status: SessionStatus };
  "session.input.consumed": OfSession & {
    data: { item_id: string; type: "message"; data: { role: "user"; content: ContentPart[] } };
  };
  "session.interrupted": OfSession & { data: { response_id: string } };
  "response.created": { response: Response };
  "response.in_progress": { response: Response };
  "response.completed": { response: Response };
  "response.failed": { response: Response };
  "response.incomplete": { response: Response };
  "response.cancelled": { response: Response };
  "response.retry": { attempt: number; max_attempts: number; delay_seconds: number; error: Failure };
  "response.output_item.added": { output_index: number; item: Item };
  "response.output_item.done": { output_index: number; item: Item };
  "response.output_text.delta": OfText & { content_index: number; delta: string };
  "response.output_text.done": OfText & { content_index: number; text: string };
  "response.refusal.delta": OfText & { content_index: number; delta: string };
  "response.refusal.done": OfText & { content_index: number; refusal: string };
  "response.reasoning_text.delta": OfText & { content_index: number; delta: string };
  "response.reasoning_text.done": OfText & { content_index: number; text: string };
  "response.reasoning_summary_text.delta": OfText & { summary_index: number; delta: string };
  "response.reasoning_summary_text.done": OfText & { summary_index: number; text: string };
  "response.function_call_arguments.delta": OfText & { delta: string };
  "response.function_call_arguments.done": OfText & { name: string; arguments: string };
}

interface LocalData {
  /** A sign of life of the connection. */
  "session.heartbeat": OfSession;
  /** A connection of the shared stream has opened or is tried again in `delay_ms`; `ended`: there will be no other. */
  "layby.connection":
    { state: "open" } | { state: "retrying"; error: Error; delay_ms: number } | { state: "ended"; error?: Error };
  /** The output of a tool was taken; `duplicate`: another client had given the very same. */
  "layby.answered": { call_id: string; name: string; status: "accepted" | "duplicate"; is_error: boolean };
  /** The output of a tool was not wanted any more: `call_already_resolved`, `call_cancelled`, `forbidden`, … */
  "layby.answer_lost": { call_id: string; name: string; code: string; error: Error };
}

/** An event of the session. `cursor` is the position after it; those that only tell how a session stands have none. */
export type SessionEvent = { [T in keyof EventData]: { type: T; cursor?: string } & EventData[T] }[keyof EventData];

/** What a listener can get beyond the session's events. */
export type LocalEvent = { [T in keyof LocalData]: { type: T } & LocalData[T] }[keyof LocalData];

export type AnyEvent = SessionEvent | LocalEvent;

/** A tool that runs at a client, in the nested form or the flat one. */
export type ToolOffer =
  | { type: "function"; function: ToolFunction; tool_timeout_s?: number | null }
  | ({ type: "function"; tool_timeout_s?: number | null } & ToolFunction);

interface ToolFunction {
  /** 1 to 64 of `A-Z a-z 0-9 _ -`. */
  name: string;
  description?: string;
  /** JSON Schema. */
  parameters?: object;
  strict?: boolean;
}

/** The call that a tool is run for. */
export interface Call {
  call_id: string;
  name: string;
  arguments: string;
  response_id: string;
  /** Aborts when the call was resolved or cancelled by somebody else, or the session was closed here. */
  signal: AbortSignal;
}

export interface ConnectionOptions {
  /** Where the server is, such as `https://host.example.com`; by default where the page is from. */
  baseUrl?: string;
  /** Silence after which a stream is dead, in milliseconds; 40 000 by default. */
  silenceMs?: number;
  /** In place of the global `fetch`. */
  fetch?: (url: string, init: RequestInit) => Promise<globalThis.Response>;
}

export interface OpenOptions extends ConnectionOptions {
  sessionId: string;
  /** A session token or an API key, or what gets a fresh one. */
  token?: string | (() => string | Promise<string>);
}

export interface CreateOptions extends ConnectionOptions {
  apiKey?: string;
  agent_id?: string;
  agent?: object;
  title?: string | null;
  labels?: Record<string, string>;
  initial_items?: object[];
  model_override?: string | null;
  reasoning_effort?: string | null;
  expires_in?: number | null;
  location_hint?: string | null;
}

export interface SendOptions {
  /** Tools of this message, beside the registered ones; one of the same name takes the registered one's place. */
  tools?: ToolOffer[];
  onBusy?: "queue" | "steer" | "interrupt" | "reject";
  /** The client's own id of the message: a second message with it is not taken. */
  id?: string;
  /** Gives up. */
  signal?: AbortSignal;
  model_override?: string;
  reasoning_effort?: string;
  max_output_tokens?: number;
  temperature?: number;
  tool_choice?: string | object;
  parallel_tool_calls?: boolean;
  response_format?: object;
}

export interface Sent {
  queued: true;
  item_id: string;
  response_id: string;
  status: "started" | "queued" | "steered";
  /** The position just before what the message causes. */
  cursor: string;
}

export interface SessionEvents extends AsyncIterableIterator<SessionEvent> {
  return(): Promise<IteratorResult<SessionEvent>>;
}

export class LaybyError extends Error {
  readonly status: number;
  readonly code: string;
  readonly param: string | null;
  readonly requestId: string | null;
  readonly retryAfterS: number | undefined;
  constructor(
    status: number,
    error?: { code?: string; message?: string; param?: string | null; request_id?: string },
    retryAfterS?: number,
  );
  static isTransient(error: unknown): boolean;
}

export class Session {
  private constructor();
  readonly id: string;
  readonly cursor: string | undefined;
  static open(options: OpenOptions): Promise<Session>;
  static create(options?: CreateOptions): Promise<Session>;
  request<T = unknown>(
    method: "GET" | "POST" | "PATCH" | "DELETE",
    path?: string,
    body?: object,
    options?: { signal?: AbortSignal; attempts?: number },
  ): Promise<T>;
  send(content: string | ContentPart[], options?: SendOptions): Promise<Sent>;
  ask(content: string | ContentPart[], options?: SendOptions): Promise<Response & { output_text: string }>;
  interrupt(responseId?: string): Promise<{ queued: false; status: "interrupted" | "idle" | "stale"; cursor: string }>;
  cancelCall(callId: string): Promise<{ call_id: string; status: "cancelled"; remaining: number; cursor: string }>;
  snapshot(query?: { include_items?: boolean; item_limit?: number }): Promise<Snapshot>;
  items(query?: { limit?: number; after?: string; before?: string; order?: "asc" | "desc" }): Promise<ItemsPage>;
  tool<Args = any>(
    name: string,
    options: { description?: string; parameters?: object; timeoutS?: number } | undefined,
    run: (args: Args, call: Call) => unknown,
  ): () => void;
  on(type: "*", listener: (event: AnyEvent) => void): () => void;
  on<T extends AnyEvent["type"]>(type: T, listener: (event: Extract<AnyEvent, { type: T }>) => void): () => void;
  events(options?: { after?: string }): SessionEvents;
  close(): void;
}
