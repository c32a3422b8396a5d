// In a browser: the console as a person uses it, the example page, and the browser's own EventSource.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { browser as find } from "../../scripts/browser.mjs";
import { Session, eventually, model, request, serve } from "./kit.mjs";
import { network } from "./network.mjs";

const { path: executablePath, why } = find();
const skip = executablePath ? false : `no Chromium: ${why}`;
const shots = fileURLToPath(new URL("../../.cache/screenshots", import.meta.url));
let chrome;

before(async () => {
  if (skip) return;
  mkdirSync(shots, { recursive: true });
  chrome = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
});
after(() => chrome?.close());

/** A page on the console of `server`. Errors of its scripts fail the test. */
async function visit(t, server, options = {}) {
  const context = await chrome.newContext(options);
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(error.message));
  t.after(async () => {
    await context.close();
    assert.deepEqual(errors, []);
  });
  await page.goto(server.url);
  return { page, context };
}

const said = (page, text) => page.locator("#items li", { hasText: text }).last().waitFor();

test("a person makes a session, chats, and answers a parked call by hand", { skip }, async (t) => {
  const server = await serve(t);
  const { page } = await visit(t, server);
  await page.getByText("New session").click();
  await page.getByLabel("Title").fill("My first");
  await page.getByRole("button", { name: "Create" }).click();
  await page.locator("#link", { hasText: "connected" }).waitFor();
  await page.getByLabel("Message", { exact: false }).first().fill("Hello there");
  await page.keyboard.press("Enter");
  await said(page, "You said: Hello there");
  await page.locator("#say").fill('please ask_me {"question": "What is six times seven?"}');
  await page.getByRole("button", { name: "Send" }).click();
  const call = page.getByRole("form", { name: "Call of ask_me" });
  await call.getByText("What is six times seven?").waitFor();
  await call.getByText("string: what to answer").waitFor();
  await page.screenshot({ path: `${shots}/parked.png` });
  await call.getByLabel("Answer").fill("forty-two");
  await call.getByRole("button", { name: "Answer" }).click();
  await said(page, "The tool answered: forty-two");
  assert.equal(await call.count(), 0);
  await page.locator("#facts dd", { hasText: "idle" }).waitFor();
  const cursor = await page.locator("#events li", { hasText: "response.completed" }).first().textContent();
  assert.match(cursor, /[0-9a-f]{6}\.\d+\.\d+\.0/);
  await page.screenshot({ path: `${shots}/console.png` });
  await page.reload();
  await said(page, "The tool answered: forty-two");
  assert.equal(await page.locator("#items li").count(), 6, "what was said is there once");
});

test("offline and back: nothing is lost, and it shows", { skip }, async (t) => {
  const server = await serve(t);
  const text = Array.from({ length: 400 }, (_, n) => `word${n}`).join(" ");
  const llm = await model(t, [{ text, chunk: 7, pause: 10 }]);
  const session = await Session.on(server, llm);
  const net = await network(t, server);
  const { page, context } = await visit(t, net);
  await page.goto(`${net.url}/#${session.id}`);
  await page.reload();
  await page.locator("#link", { hasText: "connected" }).waitFor();
  await session.say("go");
  await said(page, "word20");
  await context.setOffline(true);
  [net.down] = [true, net.cut()];
  await page.locator("#link:not([data-state=on])").waitFor({ timeout: 60_000 });
  await session.status("idle");
  net.down = false;
  await context.setOffline(false);
  await said(page, "word399");
  const shown = await page
    .locator("#items li")
    .last()
    .evaluate((node) => node.firstChild.textContent);
  assert.equal(shown, text);
  assert.equal(await page.locator("#items li").count(), 2);
});

test("messages wait, steer and are withdrawn; a turn is interrupted", { skip }, async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ text: "slow ".repeat(400), chunk: 5, pause: 50 }]);
  const session = await Session.on(server, llm, {}, { title: "busy" });
  const { page } = await visit(t, server);
  await page.getByRole("button", { name: "busy" }).click();
  await page.locator("#say").fill("first");
  await page.keyboard.press("Enter");
  await said(page, "slow slow");
  await page.locator("#say").fill("second");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Withdraw" }).click();
  await page.locator("#queue", { hasText: "empty" }).waitFor();
  await page.getByRole("button", { name: "Interrupt" }).click();
  await page.locator("#items li", { hasText: "incomplete" }).waitFor();
  await eventually(async () => (await session.snapshot()).status === "idle", "the end of the turn");
});

test("a closed deployment asks for its key, which stays in the tab", { skip }, async (t) => {
  const server = await serve(t, { LAYBY_API_KEYS: "acme:key-of-acme" });
  await request(server, "POST", "/v1/sessions", { title: "Secret plans" }, { authorization: "Bearer key-of-acme" });
  const { page, context } = await visit(t, server);
  await page.getByRole("alert").filter({ hasText: "send an API key" }).waitFor();
  await page.getByLabel("API key").fill("key-of-acme");
  await page.keyboard.press("Tab");
  await page.getByRole("button", { name: "Secret plans" }).click();
  await page.locator("#link", { hasText: "connected" }).waitFor();
  const other = await context.newPage();
  await other.goto(server.url);
  await other.getByRole("alert").filter({ hasText: "send an API key" }).waitFor();
});

test("it fits a phone, in the dark too, and the keyboard reaches everything", { skip }, async (t) => {
  const server = await serve(t);
  await Session.create(server, { title: "Pocket" });
  const { page } = await visit(t, server, { viewport: { width: 390, height: 844 }, colorScheme: "dark" });
  await page.getByRole("button", { name: "Sessions" }).click();
  await page.getByRole("button", { name: "Pocket" }).click();
  await page.locator("#say:enabled").waitFor();
  await page.locator("#say").fill("hi");
  await page.keyboard.press("Enter");
  await said(page, "You said: hi");
  await page.screenshot({ path: `${shots}/phone.png` });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
  assert.equal(wide, false, "it scrolls sideways");
  await page.getByRole("button", { name: "Details" }).click();
  await page.getByRole("heading", { name: "Events" }).waitFor();
  const unnamed = await page.evaluate(
    () =>
      [...document.querySelectorAll("input, textarea, select, button")].filter(
        (node) => !node.labels?.length && !node.textContent.trim() && !node.getAttribute("aria-label"),
      ).length,
  );
  assert.equal(unnamed, 0, "a control has no name");
});

test("the example page's tool answers by itself, with what stands on the page", { skip }, async (t) => {
  const server = await serve(t);
  const { page } = await visit(t, server);
  const html = readFileSync(new URL("../../examples/browser/index.html", import.meta.url), "utf8");
  await page.route(`${server.url}/example`, (route) => route.fulfill({ contentType: "text/html", body: html }));
  await page.goto(`${server.url}/example`);
  await page.getByLabel("base URL").fill(server.url);
  await page.getByRole("button", { name: "Start" }).click();
  await page.getByRole("button", { name: "Send" }).click();
  await page.locator("#log p", { hasText: "The tool answered: Opening hours: nine to five" }).waitFor();
});

test("the browser's own EventSource reads with a token in the address, and resumes", { skip }, async (t) => {
  const server = await serve(t, { LAYBY_API_KEYS: "acme:key-of-acme", LAYBY_ORIGINS: "*" });
  const session = await Session.create(server, {}, { authorization: "Bearer key-of-acme" });
  const { body } = await session.request("POST", "/tokens", { scopes: ["read"] });
  const net = await network(t, server);
  const { page } = await visit(t, net);
  await page.evaluate((address) => {
    window.seen = [];
    const source = new EventSource(address);
    const types = ["response.output_text.delta", "response.completed", "session.heartbeat"];
    for (const type of types)
      source.addEventListener(type, ({ data, lastEventId }) => window.seen.push({ ...JSON.parse(data), lastEventId }));
  }, `${net.url}/v1/sessions/${session.id}/stream?after=start&access_token=${body.token}`);
  const seen = (type) => page.waitForFunction((type) => window.seen.some((event) => event.type === type), type);
  await seen("session.heartbeat");
  await session.say("first");
  await seen("response.completed");
  net.cut();
  await session.say("second");
  const both = () => window.seen.filter(({ type }) => type === "response.completed").length === 2;
  await page.waitForFunction(both);
  const text = await page.evaluate(() => window.seen.map(({ delta }) => delta ?? "").join(""));
  assert.equal(text, "You said: firstYou said: second");
});
