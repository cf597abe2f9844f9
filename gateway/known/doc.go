// Package known is what an edge knows of whole sales, so that a flood on one that is sold out, scheduled, paused or closed is answered from memory.
//
// A backend says with such a refusal how long it may be repeated (Sluice-Sale), and on request who may hold an order of the sale (Sluice-Holders).
// The package decides for one purchase: repeat the refusal, let the request pass, or let it pass to renew what is known. Three things hold:
//
//   - Who may hold an order passes, whatever everybody else is told: the same request gets the same answer.
//   - Nothing is repeated for longer than its time, which began before the backend was asked.
//   - No client can add to this memory: it is made of backends' answers only.
//
// It knows no HTTP library, judges no signature and writes no answer.
package known
