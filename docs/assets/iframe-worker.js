// Browsers start no Worker from a file: the search's runs in a hidden frame then, so that the
// documentation can be searched as `make docs` opens it. The theme looks for the name IFrameWorker.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inner = frame.contentWindow;
    const load = (source) => new Promise((done, failed) => {
      const script = this.inner.document.createElement("script");
      Object.assign(script, { src: source, onload: done, onerror: failed });
      this.inner.document.body.append(script);
    });
    this.inner.importScripts = async (...sources) => {
      for (const source of sources) await load(source);
    };
    this.inner.postMessage = (data) => {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    };
    this.ready = load(url);
  }

  async postMessage(data) {
    await this.ready;
    this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data }));
  }

  terminate() {
    this.inner.frameElement.remove();
  }
}
if (location.protocol === "file:") Object.assign(window, { IFrameWorker, Worker: IFrameWorker });
