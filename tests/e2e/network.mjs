// A network that fails, between a client and a served worker.
import { once } from "node:events";
import { connect, createServer } from "node:net";

/**
 * A network in front of a server. `cutAfter` gives the bytes after which each stream breaks off; `cut` breaks off all
 * connections; `freeze` lets those that are open be, but silent; `down` refuses new ones.
 */
export async function network(t, server, cutAfter = () => Infinity) {
  const open = new Set();
  const net = { streams: 0, cuts: 0, down: false };
  const proxy = createServer((near) => {
    if (net.down) return near.destroy();
    const far = connect(server.port, "127.0.0.1");
    const link = { near, far, frozen: false, left: Infinity };
    open.add(link);
    near.on("data", (data) => {
      if (data.includes("/stream")) {
        net.streams++;
        link.left = cutAfter();
      }
      if (!link.frozen) far.write(data);
    });
    far.on("data", (data) => {
      if (link.frozen) return;
      near.write(data.subarray(0, Math.min(data.length, link.left)));
      link.left -= data.length;
      if (link.left > 0) return;
      net.cuts++;
      link.frozen = true;
      near.end(() => near.destroy());
      far.destroy();
    });
    for (const socket of [near, far]) {
      socket.on("error", () => {});
      socket.on("close", () => {
        open.delete(link);
        near.destroy();
        far.destroy();
      });
    }
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  net.url = `http://127.0.0.1:${proxy.address().port}`;
  net.cut = () => open.forEach(({ near }) => near.destroy());
  net.freeze = () => open.forEach((link) => (link.frozen = true));
  t.after(() => {
    net.cut();
    proxy.close();
  });
  return net;
}
