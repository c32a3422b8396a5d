// Wraps a worker and counts what the platform bills: calls of its objects, and the rows that these read and write.
// `GET /count` answers what was counted since the last time. Whoever serves it adds the classes of objects (side.mjs).
import Worker, * as worker from "./index.js";

let calls = {};
let cursors = [];
let alarms = 0;

function count(name, inner) {
  const noted = (handler) => (calls[`${name}.${handler}`] = (calls[`${name}.${handler}`] ?? 0) + 1);
  return class extends inner {
    constructor(ctx, env) {
      listen(ctx.storage);
      super(ctx, env);
      noted("constructor");
    }
    fetch(request) {
      noted("fetch");
      return super.fetch(request);
    }
    alarm(info) {
      noted("alarm");
      return super.alarm(info);
    }
  };
}

let listening = false;
function listen(storage) {
  if (listening) return;
  listening = true;
  const sql = Object.getPrototypeOf(storage.sql);
  const { exec } = sql;
  sql.exec = function (...args) {
    const cursor = exec.apply(this, args);
    cursors.push(cursor);
    return cursor;
  };
  const prototype = Object.getPrototypeOf(storage);
  const { setAlarm } = prototype;
  prototype.setAlarm = function (...args) {
    alarms++;
    return setAlarm.apply(this, args);
  };
}

export default class extends Worker {
  fetch(request) {
    if (new URL(request.url).pathname !== "/count") return super.fetch(request);
    const sum = (column) => cursors.reduce((sum, cursor) => sum + cursor[column], 0);
    const counted = { calls, alarms, read: sum("rowsRead"), written: sum("rowsWritten") + alarms };
    calls = {};
    cursors = [];
    alarms = 0;
    return Response.json(counted);
  }
}
