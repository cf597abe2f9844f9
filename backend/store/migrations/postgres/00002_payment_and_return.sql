-- +goose Up

-- How long an order may stay unpaid; 0 is for ever. An order's due_at is reckoned from it once, when the order becomes a row.
ALTER TABLE sales ADD COLUMN hold_ms bigint NOT NULL DEFAULT 0 CHECK (hold_ms >= 0);

-- returned follows the unit of a cancelled order on its way back to Redis. NULL: cancelled, and the unit is not back; n: it came back as the
-- sale's return number n; 0: Redis had counted it as free before; -1: nothing is to be given back here (the order is not cancelled,
-- or it died in the queue, and its dead letter gives the unit back). Cancelled rows from before this migration have -1.
ALTER TABLE orders
    ADD COLUMN due_at    timestamptz,
    ADD COLUMN reference text,
    ADD COLUMN returned  bigint DEFAULT -1;

CREATE INDEX orders_due ON orders (due_at) WHERE status = 'created' AND due_at IS NOT NULL;
CREATE INDEX orders_returning ON orders (id) WHERE status = 'cancelled' AND returned IS NULL;
-- For the audit: what of a sale was given back after an instant, or not yet.
CREATE INDEX orders_returned ON orders (sale_id, returned) WHERE status = 'cancelled';

-- Every callback of the payment provider that named an order, and what it was answered: the same callback again is answered the same.
CREATE TABLE payments (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    callback_id text COLLATE "C" NOT NULL UNIQUE,
    digest      text NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    order_id    bigint NOT NULL,
    sale_id     text COLLATE "C" NOT NULL,
    event       text NOT NULL CHECK (event IN ('succeeded', 'failed')),
    amount      bigint NOT NULL,
    currency    text NOT NULL,
    reference   text NOT NULL,
    outcome     text NOT NULL CHECK (outcome IN ('paid', 'failed', 'order_cancelled', 'mismatch', 'paid_already')),
    -- 1: money came that no order took; a person has to give it back.
    refund      integer NOT NULL CHECK (refund IN (0, 1)),
    settled_at  timestamptz,
    settled_by  text,
    note        text
);

CREATE INDEX payments_order ON payments (order_id);
CREATE INDEX payments_refund ON payments (id) WHERE refund = 1 AND settled_at IS NULL;

-- +goose Down
DROP TABLE payments;
DROP INDEX orders_returned;
DROP INDEX orders_returning;
DROP INDEX orders_due;
ALTER TABLE orders DROP COLUMN returned, DROP COLUMN reference, DROP COLUMN due_at;
ALTER TABLE sales DROP COLUMN hold_ms;
