// Wraps a worker and counts what the platform bills: calls of its objects, and the rows that these read and write, an alarm
// that is set being one of them. `GET /count` answers what was counted since the last time, by class. Whoever serves it adds
// the classes of objects (`counted` in side.mjs).
import Worker, * as worker from "./index.js";

let calls = {};
let cursors = [];
let alarms = {};
const owners = new WeakMap();

function count(name, inner) {
  const noted = (handler) => (calls[`${name}.${handler}`] = (calls[`${name}.${handler}`] ?? 0) + 1);
  return class extends inner {
    constructor(ctx, env) {
      owners.set(ctx.storage, name).set(ctx.storage.sql, name);
      listen(ctx.storage);
      super(ctx, env);
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
    cursors.push({ cursor, owner: owners.get(this) });
    return cursor;
  };
  const prototype = Object.getPrototypeOf(storage);
  const { setAlarm } = prototype;
  prototype.setAlarm = function (...args) {
    const owner = owners.get(this);
    alarms[owner] = (alarms[owner] ?? 0) + 1;
    return setAlarm.apply(this, args);
  };
}

export default class extends Worker {
  fetch(request) {
    if (new URL(request.url).pathname !== "/count") return super.fetch(request);
    const [read, written] = [{}, { ...alarms }];
    for (const { cursor, owner } of cursors) {
      read[owner] = (read[owner] ?? 0) + cursor.rowsRead;
      written[owner] = (written[owner] ?? 0) + cursor.rowsWritten;
    }
    const counted = { calls, read, written };
    calls = {};
    cursors = [];
    alarms = {};
    return Response.json(counted);
  }
}
