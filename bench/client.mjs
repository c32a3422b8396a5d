// A client as thin as can be, so that it adds little to what is measured.
import { Agent, request } from "node:http";

const agent = new Agent({ keepAlive: true, maxSockets: Infinity });

function send(url, method, headers, body, onResponse) {
  return new Promise((resolve, reject) => {
    const req = request(url, { method, agent, headers });
    req.on("error", reject);
    req.on("response", (res) => onResponse(res, resolve, reject));
    req.end(body);
  });
}

/** Posts JSON and reads the answer. */
export function post(url, body, headers = {}) {
  const text = JSON.stringify(body);
  const all = { "content-type": "application/json", "content-length": Buffer.byteLength(text), ...headers };
  return send(url, "POST", all, text, (res, resolve, reject) => {
    let answer = "";
    res.setEncoding("utf8");
    res.on("data", (chunk) => (answer += chunk));
    res.on("end", () => {
      if (res.statusCode >= 300) reject(new Error(`POST ${url}: ${res.statusCode} ${answer}`));
      else resolve(answer && JSON.parse(answer));
    });
  });
}

/** An open stream. */
export class Reader {
  #unread = "";
  #waiting = [];

  static open(url, headers = {}, method = "GET", body = undefined) {
    return send(url, method, headers, body, (res, resolve, reject) => {
      if (res.statusCode !== 200) return reject(new Error(`${method} ${url}: ${res.statusCode}`));
      resolve(new Reader(res));
    });
  }

  constructor(res) {
    this.res = res;
    res.setEncoding("latin1");
    res.on("data", (chunk) => this.#take(chunk));
    res.on("error", () => {});
  }

  #take(chunk) {
    const text = this.#unread + chunk;
    let read = 0;
    this.#waiting = this.#waiting.filter(({ word, resolve }) => {
      const at = text.indexOf(word);
      if (at < 0) return true;
      read = Math.max(read, at + word.length);
      resolve(performance.now());
      return false;
    });
    // While somebody waits, only a word that was cut matters.
    this.#unread = text.slice(this.#waiting.length > 0 ? Math.max(read, text.length - 40) : read);
  }

  /** When `word` comes next, in milliseconds of the process. */
  when(word) {
    return new Promise((resolve) => {
      this.#waiting.push({ word, resolve });
      this.#take("");
    });
  }

  close() {
    this.res.destroy();
  }
}
