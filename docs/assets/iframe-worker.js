// Browsers start no worker on a page that was opened from a folder. There, the site's search runs
// in a hidden frame instead. Pages that come from a server keep the browser's workers.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.srcdoc = `<script src="${url}"></script>`
      this.loaded = new Promise(resolve => frame.addEventListener("load", resolve)).then(() => {
        const inside = frame.contentWindow
        inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
        return inside
      })
      document.body.append(frame)
    }
    postMessage(data) {
      this.loaded.then(inside => inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
