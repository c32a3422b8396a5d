// The console: lists and makes sessions, chats, answers parked calls by hand, and shows what happens. It uses the public API
// and the client of /client.js, nothing else.
import { Session } from "/client.js";

const base = location.origin;
const $ = (id) => document.getElementById(id);
const MAX_EVENTS = 500;
const EXAMPLE_TOOLS = [
  {
    type: "function",
    function: {
      name: "ask_me",
      description: "Asks the person at the console.",
      parameters: {
        type: "object",
        properties: { question: { type: "string", description: "what to answer" } },
        required: ["question"],
      },
    },
  },
];

/** The session that is shown, with what is known of it. */
let shown = null;
/** Counts choices, so that what belongs to an earlier one is dropped. */
let choice = 0;

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false)
      node.setAttribute(key, value === true ? "" : value);
  node.append(...children.filter((child) => child !== undefined && child !== null));
  return node;
}

function fail(error) {
  $("error").hidden = !error;
  $("error").textContent = error ? String(error.message ?? error) : "";
}

/** Does what a control asks for, and tells what went wrong. */
async function attempt(action) {
  fail(null);
  try {
    return await action();
  } catch (error) {
    fail(error);
  }
}

const key = () => $("key").value.trim();

async function api(method, path, body) {
  const headers = {};
  if (key()) headers.authorization = `Bearer ${key()}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(base + path, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const json = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(json.error?.message ?? `${method} ${path} answered ${answer.status}`);
  return json;
}

// ---- the list

let last = null;

async function list(after) {
  const query = new URLSearchParams({ limit: "30" });
  if (after) query.set("after", after);
  if ($("search").value.trim()) query.set("search_query", $("search").value.trim());
  const page = await api("GET", `/v1/sessions?${query}`);
  if (!after) $("list").replaceChildren();
  for (const session of page.data) {
    const title = session.title || session.id;
    const time = new Date(session.updated_at * 1000).toLocaleString();
    const button = element(
      "button",
      {
        type: "button",
        "data-id": session.id,
        "aria-current": session.id === shown?.id && "true",
        onclick: () => open(session.id),
      },
      title,
      element("small", {}, `${session.agent_name} · ${session.status} · ${time}`),
    );
    $("list").append(element("li", {}, button));
  }
  last = page.last_id;
  $("more").hidden = !page.has_more;
}

// ---- one session

async function open(id) {
  const mine = ++choice;
  shown?.session.close();
  for (const name of ["items", "calls", "facts", "queue", "events"]) $(name).replaceChildren();
  $("sessions").classList.remove("open");
  history.replaceState(null, "", `#${id}`);
  const session = await Session.open({ baseUrl: base, sessionId: id, token: key() || undefined });
  if (mine !== choice) return session.close();
  session.on("layby.connection", (event) => mine === choice && connection(event.state));
  shown = { id, session, items: new Map(), calls: new Map(), snapshot: null };
  for (const name of ["say", "send", "stop"]) $(name).disabled = false;
  $("say").placeholder = "Say something";
  for (const button of $("list").querySelectorAll("button"))
    button.toggleAttribute("aria-current", button.dataset.id === id);
  const { tools } = await session.request("GET", "/agent");
  if (mine !== choice) return;
  shown.tools = tools;
  // First the stream, then the snapshot: what happens in between is in both, and items are known by their ids.
  const waiting = [];
  let ready = false;
  const follow = (async () => {
    for await (const event of session.events()) {
      if (mine !== choice) return;
      if (ready) take(event);
      else waiting.push(event);
    }
  })();
  follow.catch((error) => mine === choice && fail(error));
  await refresh(mine);
  if (mine !== choice) return;
  for (const item of shown.snapshot.items) put(item);
  for (const call of shown.snapshot.pending_tool_calls) ask(call);
  ready = true;
  waiting.forEach(take);
}

function connection(state) {
  $("link").textContent = { open: "connected", ended: "not connected" }[state] ?? "reconnecting …";
  $("link").dataset.state = state === "open" ? "on" : "off";
}

async function refresh(mine = choice) {
  const snapshot = await shown.session.snapshot();
  if (mine !== choice) return;
  shown.snapshot = snapshot;
  const time = (seconds) => (seconds ? new Date(seconds * 1000).toLocaleString() : "never");
  const facts = {
    Id: snapshot.id,
    Status: snapshot.status,
    Agent: snapshot.agent_name,
    Model: snapshot.model,
    Turn: snapshot.active_response_id ?? "none",
    "Tokens in": snapshot.usage.input_tokens,
    "Tokens out": snapshot.usage.output_tokens,
    Made: time(snapshot.created_at),
    Expires: time(snapshot.expires_at),
    Error: snapshot.last_task_error
      ? `${snapshot.last_task_error.code}: ${snapshot.last_task_error.message}`
      : undefined,
  };
  const rows = Object.entries(facts).filter(([, value]) => value !== undefined);
  $("facts").replaceChildren(
    ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, String(value))]),
  );
  const waits = snapshot.queue.map(({ item_id, created_at }) =>
    element(
      "li",
      {},
      `${time(created_at)} `,
      element(
        "button",
        {
          type: "button",
          onclick: () =>
            attempt(() => api("DELETE", `/v1/sessions/${shown.id}/queue/${item_id}`).then(() => refresh())),
        },
        "Withdraw",
      ),
    ),
  );
  $("queue").replaceChildren(...(waits.length > 0 ? waits : [element("li", {}, "empty")]));
}

// ---- what happens

function take(event) {
  log(event);
  const { type } = event;
  if (type === "session.input.consumed")
    put({ id: event.data.item_id, type: event.data.type, status: "completed", ...event.data.data });
  else if (type === "response.output_item.added" || type === "response.output_item.done") {
    put(event.item);
    if (event.item.type === "function_call" && event.item.status === "action_required") ask(event.item);
    if (event.item.type === "function_call_output") settle(event.item.call_id);
    if (event.item.type === "function_call" && ["completed", "cancelled"].includes(event.item.status))
      settle(event.item.call_id);
  } else if (type.endsWith(".delta")) grow(event);
  else if (type === "response.retry")
    note(`tried again (${event.attempt} of ${event.max_attempts}): ${event.error.message}`);
  else if (type === "response.failed") note(`${event.response.error.code}: ${event.response.error.message}`);
  if (type === "session.status") attempt(() => refresh());
}

const textOf = (item) => {
  if (item.type === "function_call") return `${item.name}(${item.arguments ?? ""})`;
  if (item.type === "error") return `${item.code}: ${item.message}`;
  const content = item.type === "function_call_output" ? item.output : (item.content ?? item.summary ?? []);
  if (typeof content === "string") return content;
  return content.map((part) => part.text ?? part.refusal ?? `[${part.type}]`).join("");
};

/** Shows an item, or what has become of it. */
function put(item) {
  const known = shown.items.get(item.id);
  const node = known?.node ?? element("li", { class: `${item.type} ${item.role ?? ""}` });
  const text = textOf(item);
  const entry = { node, item, text: item.status === "in_progress" && known ? known.text : text };
  shown.items.set(item.id, entry);
  draw(entry);
  if (!known) append(node);
}

function draw({ node, item, text }) {
  const label =
    { completed: "", in_progress: "writing …", action_required: "waits for an answer" }[item.status] ?? item.status;
  node.replaceChildren(text, label ? element("span", { class: "state" }, label) : "");
}

function grow({ item_id, delta }) {
  const entry = shown.items.get(item_id);
  if (!entry || entry.item.status !== "in_progress") return;
  entry.text = entry.item.type === "function_call" ? entry.text.replace(/\)$/, `${delta})`) : entry.text + delta;
  draw(entry);
  scroll();
}

function append(node) {
  $("items").append(node);
  scroll();
}

function scroll() {
  $("items").scrollTop = $("items").scrollHeight;
}

const note = (text) => append(element("li", { class: "error" }, text));

function log(event) {
  if (event.type.endsWith(".delta") && !$("deltas").checked) return;
  const { type, cursor = "", ...rest } = event;
  $("events").prepend(
    element("li", {}, element("b", {}, type), ` ${cursor} `, element("i", {}, JSON.stringify(rest).slice(0, 400))),
  );
  while ($("events").childElementCount > MAX_EVENTS) $("events").lastElementChild.remove();
}

// ---- parked calls, answered by hand

function settle(callId) {
  shown.calls.get(callId)?.remove();
  shown.calls.delete(callId);
}

const parse = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
};

/** What is known of a tool: from the agent, or from the tools that are offered here. */
function parametersOf(name) {
  const offered = parse($("tools").value || "[]");
  const known = [
    ...(shown.tools ?? []),
    ...(Array.isArray(offered) ? offered.map((tool) => tool.function ?? tool) : []),
  ];
  return known.findLast((tool) => tool?.name === name)?.parameters ?? {};
}

/** The arguments of a call, in the order and with the words of the tool's schema. */
function argumentsOf(call) {
  const { properties = {}, required = [] } = parametersOf(call.name);
  const given = parse(call.arguments);
  const names = [...Object.keys(properties), ...Object.keys(given).filter((name) => !(name in properties))];
  return names.flatMap((name) => {
    const { title = name, description, type } = properties[name] ?? {};
    const value = given[name];
    const text =
      typeof value === "string"
        ? value
        : value === undefined
          ? required.includes(name)
            ? "missing"
            : "not given"
          : JSON.stringify(value);
    const hint = [type, description].filter(Boolean).join(": ");
    return [element("dt", {}, title), element("dd", {}, text, hint && element("small", {}, hint))];
  });
}

function ask(call) {
  if (shown.calls.has(call.call_id)) return;
  const answer = element("textarea", { rows: 2, required: true });
  const failed = element("input", { type: "checkbox" });
  const give = (event) => {
    event.preventDefault();
    const data = { call_id: call.call_id, output: answer.value, is_error: failed.checked };
    attempt(() => api("POST", `/v1/sessions/${shown.id}/events`, { type: "function_call_output", data }));
  };
  const node = element(
    "form",
    { class: "call", onsubmit: give, "aria-label": `Call of ${call.name}` },
    element("h3", {}, `${call.name} waits for an answer`),
    element("dl", {}, ...argumentsOf(call)),
    element("label", {}, "Answer", answer),
    element(
      "div",
      { class: "row" },
      element("label", {}, failed, " the tool failed"),
      element("button", {}, "Answer"),
      element(
        "button",
        {
          type: "button",
          onclick: () => attempt(() => api("DELETE", `/v1/sessions/${shown.id}/calls/${call.call_id}`)),
        },
        "Cancel the call",
      ),
    ),
  );
  shown.calls.set(call.call_id, node);
  $("calls").append(node);
}

// ---- controls

function tools() {
  const text = $("tools").value.trim();
  if (!text) return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`the tools are no JSON: ${error.message}`);
  }
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const content = $("say").value.trim();
  if (!content) return;
  attempt(async () => {
    await api("POST", `/v1/sessions/${shown.id}/events`, {
      type: "message",
      data: { role: "user", content },
      tools: tools(),
      on_busy: $("busy").value,
    });
    $("say").value = "";
    await refresh();
  });
});
$("say").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("composer").requestSubmit();
});
$("stop").addEventListener("click", () => attempt(() => shown.session.interrupt()));
$("create").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    const body = {};
    if ($("title").value.trim()) body.title = $("title").value.trim();
    if ($("agent").value.trim()) body.agent = JSON.parse($("agent").value);
    const made = await api("POST", "/v1/sessions", body);
    $("new").open = false;
    $("title").value = "";
    await list();
    await open(made.id);
    $("say").focus();
  });
});
$("more").addEventListener("click", () => attempt(() => list(last)));
$("search-form").addEventListener("submit", (event) => event.preventDefault());
let typing;
$("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => attempt(() => list()), 200);
});
$("access").addEventListener("submit", (event) => event.preventDefault());
$("key").addEventListener("change", () => {
  sessionStorage.setItem("layby-key", key());
  attempt(() => list());
});
for (const [button, panel] of [
  ["show-sessions", "sessions"],
  ["show-details", "details"],
])
  $(button).addEventListener("click", () => {
    const opened = $(panel).classList.toggle("open");
    $(button).setAttribute("aria-expanded", opened);
  });

$("key").value = sessionStorage.getItem("layby-key") ?? "";
$("tools").value = JSON.stringify(EXAMPLE_TOOLS, null, 2);
attempt(async () => {
  await list();
  const id = location.hash.slice(1);
  if (id.startsWith("sess_")) await open(id);
});
