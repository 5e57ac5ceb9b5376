/* Browsers start no workers for pages that are opened from a folder. There the search runs in a hidden frame instead. */
if (location.protocol === "file:") {
  window.Worker = class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.frame = frame;
      const inner = frame.contentWindow;
      inner.document.open();
      inner.document.write(
        "<!doctype html><html><body><script>" +
          "postMessage = parent.postMessage.bind(parent);" +
          "importScripts = (...urls) => urls.reduce((done, url) => done.then(() => new Promise((ok, no) => {" +
          "const s = document.createElement('script'); s.src = url; s.onload = ok; s.onerror = no;" +
          "document.body.appendChild(s); })), Promise.resolve());" +
          "</" + "script><script src=\"" + new URL(url, location.href) + "\"></" + "script></body></html>"
      );
      inner.document.close();
      this.ready = new Promise((done) => frame.addEventListener("load", done, { once: true }));
      window.addEventListener("message", (event) => {
        if (event.source !== inner) return;
        const copy = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(copy);
        if (this.onmessage) this.onmessage(copy);
      });
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
