package browser

import (
	"os"
	"strings"
	"testing"
	"time"
)

// documented returns the first JavaScript block of docs/events.md that has this text.
func documented(t *testing.T, text string) string {
	t.Helper()
	events, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(events), "```js\n")[1:] {
		if script, _, _ := strings.Cut(block, "```"); strings.Contains(script, text) {
			return script
		}
	}
	t.Fatalf("docs/events.md has no JavaScript with %s", text)
	return ""
}

// A page that reads the stream of its buyer as documented gets each event, also in a browser in which a stream is not
// iterable (Safari), and with an event that arrives in two chunks.
func TestDocumentedStream(t *testing.T) {
	s := openUp(t)
	s.create("streamed", nil)
	if code := s.buy("streamed", "ann"); code != 202 {
		t.Fatalf("ann got %d", code)
	}
	s.settled(func() bool { return s.ordered("streamed") == 1 }, "a row")
	b := open(t, newPerson(t), s.base+"/")
	script := strings.Replace(documented(t, "/v1/me/events"), "/*", "received.push(event); /*", 1)
	b.eval(`(() => {
		delete ReadableStream.prototype[Symbol.asyncIterator];
		delete ReadableStream.prototype.values;
		window.received = [];
		window.TextDecoderStream = class extends TransformStream {
			constructor() {
				const decoder = new TextDecoder();
				super({ transform(bytes, to) {
					const text = decoder.decode(bytes, { stream: true }), half = text.indexOf("event: order");
					if (half > 0) to.enqueue(text.slice(0, half));
					to.enqueue(text.slice(Math.max(0, half)));
				} });
			}
		};
		const token = ` + quote(s.token("ann", time.Hour)) + `, last = "";
		(async () => { ` + script + ` })().catch((e) => received.push(String(e)));
	})()`)
	b.await("the whole event of the order",
		`received.some((e) => /^id: \d+\.created\nevent: order\ndata: \{.*\}$/.test(e))`)
	b.clean()
}

// A page that subscribes as documented is registered.
func TestDocumentedSubscription(t *testing.T) {
	s := openUp(t)
	b := open(t, newPerson(t), s.base+"/")
	answer := b.promise(`(async () => {
		const token = ` + quote(s.token("ann", time.Hour)) + `;
		const stored = { toJSON: () => ({ endpoint: "https://push.example/send/1", expirationTime: null, keys: {
			p256dh: "BI4BeaV0KRzxO-RZgpouC-I-QcLnxEzS3KUiRMpGbHhzMQV0XkMDgm8tQkUZkLeOWGTIBzNw7BixcpBs-lvvjiY",
			auth: "TjFkbZWq1_-8Ti1CJb2ubA" } }) };
		const registration = { pushManager: { async subscribe({ userVisibleOnly, applicationServerKey }) {
			if (!userVisibleOnly || !/^[\w-]{87}$/.test(applicationServerKey)) throw new Error("key " + applicationServerKey);
			return stored;
		} } };
		` + documented(t, "/v1/push/key") + `
		const list = await fetch("/v1/me/push/subscriptions", { headers: { Authorization: "Bearer " + token } });
		return (await list.json()).subscriptions.map((s) => s.endpoint + " " + s.lang).join();
	})()`)
	if answer != "https://push.example/send/1 en" {
		t.Errorf("registered: %q", answer)
	}
	b.clean()
}
