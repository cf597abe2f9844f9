// ask asks once before something is done, and does it: run gets the values of the fields and answers as api does. The dialog stays open, and says why, when it was not done.
// It resolves to the answer, or to null when the operator thought better of it.
function ask({ title, text, fields = [], verb, danger, run }) {
  return new Promise((resolve) => {
    const inputs = fields.map((f) => h(f.options ? 'select' : 'input', {
      name: f.name, type: f.options ? undefined : f.type || 'text', required: f.required || undefined, min: f.min, max: f.max, maxlength: f.maxlength, placeholder: f.placeholder,
      value: f.value, step: f.step,
    }, (f.options || []).map((o) => h('option', { value: o[0] }, o[1]))));
    const problem = h('p', { class: 'problem', role: 'alert', hidden: true });
    const go = h('button', { class: danger ? 'danger' : 'main', value: 'go' }, verb);
    let answer = null;
    const form = h('form', { method: 'dialog', onsubmit: async (e) => {
      if (e.submitter !== go) return;
      e.preventDefault();
      if (go.disabled) return;
      go.disabled = true;
      problem.hidden = true;
      const values = Object.fromEntries(fields.map((f, i) => [f.name, inputs[i].value]));
      let got;
      try { got = await run(values); } catch (e) { got = { ok: false, problem: e.message }; } // a value of which nothing can be made
      if (got.ok) {
        answer = got;
        dialog.close();
        return;
      }
      problem.textContent = got.problem;
      problem.hidden = false;
      go.disabled = false;
    } },
    h('h2', { id: 'ask-title' }, title), text && h('p', null, text),
    fields.map((f, i) => h('label', null, f.label, inputs[i], f.help && h('small', { class: 'soft' }, f.help))), problem,
    h('div', { class: 'row end' }, h('button', { value: 'no', formnovalidate: true }, 'Cancel'), go));
    const dialog = h('dialog', { 'aria-labelledby': 'ask-title' }, form);
    dialog.addEventListener('close', () => { dialog.remove(); resolve(answer); });
    document.body.append(dialog);
    dialog.showModal();
    (inputs[0] || go).focus();
  });
}

const reasonField = { name: 'reason', label: 'Why', maxlength: 200, placeholder: 'Kept with your name', help: 'Kept in the log.' };

const newKey = () => crypto.randomUUID ? crypto.randomUUID() : Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, '0')).join('');
