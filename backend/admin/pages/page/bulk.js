// Actions on many dead letters.

// inSequence runs an action for each row. It stops at the first failure, except if another admin has settled the row already.
async function inSequence(rows, run) {
  let done = 0, gone = 0;
  const failures = [];
  for (const d of rows) {
    const got = await run(d);
    if (got.ok) done++;
    else if (got.status === 404) gone++;
    else if (got.status === 409) failures.push(got.problem);
    else return { ok: false, problem: 'After ' + count(done) + ': ' + got.problem };
  }
  if (failures.length && !done) return { ok: false, problem: failures[0] };
  return { ok: true, message: count(done) + ' done' + (gone ? ', ' + count(gone) + ' settled by another admin' : '') + (failures.length ? ', ' + count(failures.length) + ' failed: ' + failures[0] : '') + '.' };
}

// settleMatching settles all dead letters that match the filter, page by page on the server. Orders that fail again in the meantime are excluded,
// so that a retry ends.
function settleMatching(verb, { error_contains: text, sale, order }, letters) {
  if (order) {
    toast('To settle one order, use the buttons in its row.');
    return;
  }
  const filter = { error_contains: text || undefined, sale: sale || undefined, died_before: live.now().toISOString(), all: !text && !sale };
  const what = [text && 'with the error “' + text + '”', sale && 'of the sale ' + sale].filter(Boolean).join(', ') || '(no filter)';
  change({ title: (verb === 'retry' ? 'Retry' : 'Cancel') + ' all dead letters ' + what + '?', text: verb === 'retry' ? 'The orders are queued again, without their failures.' : 'Their units go back on sale. This cannot be undone.', verb: verb === 'retry' ? 'Retry all' : 'Cancel all', danger: verb === 'cancel', fields: [reasonField],
    run: async (v, dialog) => {
      let done = 0, failed = 0, after;
      const down = [];
      do {
        const page = await post('/dead/' + verb, { ...filter, reason: v.reason, limit: 100, after });
        if (!page.ok) return { ok: false, problem: 'After ' + count(done) + ': ' + page.problem };
        done += page.body.done;
        failed += page.body.failed;
        down.push(...page.body.unavailable_shards || []);
        after = page.body.next;
        dialog.progress(count(done) + ' done… Back stops the rest.');
      } while (after && !dialog.dismissed());
      return { ok: true, message: (after ? 'Stopped. ' : '') + count(done) + ' done' + (failed ? ', ' + count(failed) + ' failed' : '') + '.' + (down.length ? ' ' : '') + unavailable(down, 'Their dead letters were not processed') };
    }, then: () => letters.restart() });
}
