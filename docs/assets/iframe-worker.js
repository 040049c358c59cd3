// Pages opened from the disk may not start a Worker, which the site's search needs. There, and only there, a hidden
// frame stands in for it: the frame runs the worker's script, and messages go through events.
(() => {
  if (location.protocol !== "file:") return;

  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = (this.inside = this.frame.contentWindow);
      window.addEventListener("message", (event) => {
        if (event.source !== inside) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (typeof this.onmessage === "function") this.onmessage(message);
      });
      inside.document.open();
      inside.document.write(
        "<!doctype html><html><body><script>" +
          "postMessage = (data) => parent.dispatchEvent(new MessageEvent('message', { source: window, data }));" +
          "importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {" +
          "const script = document.createElement('script'); script.src = url;" +
          "script.onload = done; script.onerror = failed; document.body.appendChild(script); })), Promise.resolve());" +
          "</" + "script><script src='" + url + "'></" + "script></body></html>"
      );
      inside.document.close();
      this.ready = new Promise((done) => inside.addEventListener("load", done));
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  }

  window.Worker = FrameWorker;
})();
