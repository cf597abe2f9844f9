// A new sale. It is asked for with an id that was chosen before, so that sending it twice makes one.
async function newSale() {
  const fallback = newKey().replaceAll('-', '').slice(0, 10);
  const got = await ask({
    title: 'New sale', verb: 'Create', fields: [
      { name: 'title', label: 'Title', required: true, maxlength: 200 },
      { name: 'id', label: 'Id', maxlength: 64, placeholder: fallback, help: 'In addresses. Letters, digits, dot, dash and underscore.' },
      { name: 'stock', label: 'Stock', type: 'number', required: true, min: 1, max: 1_000_000_000 },
      { name: 'amount', label: 'Price, in the smallest unit', type: 'number', required: true, min: 0, help: '1999 is 19.99 EUR' },
      { name: 'currency', label: 'Currency', required: true, value: 'EUR', maxlength: 3 },
      { name: 'per_buyer', label: 'Units for one buyer', type: 'number', required: true, value: '1', min: 1 },
      { name: 'opens', label: 'Opens', type: 'datetime-local', help: 'In your time zone. Empty: now.' },
      { name: 'closes', label: 'Closes', type: 'datetime-local', help: 'Empty: never.' },
    ],
    run: (v) => {
      const sale = { id: v.id || fallback, title: v.title, stock: Number(v.stock), price: { amount: Number(v.amount), currency: v.currency.toUpperCase() }, per_buyer: Number(v.per_buyer), opens_at: (v.opens ? new Date(v.opens) : live.now()).toISOString() };
      if (v.closes) sale.closes_at = new Date(v.closes).toISOString();
      return post('/sales', sale);
    },
  });
  if (got) location.assign('/admin/sales/' + part(got.body.id));
}
