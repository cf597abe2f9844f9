-- +goose Up

-- The same as in migrations/postgres, where each column is explained. Times are milliseconds since 1970.
ALTER TABLE sales ADD COLUMN hold_ms integer NOT NULL DEFAULT 0 CHECK (hold_ms >= 0);

ALTER TABLE orders ADD COLUMN due_at integer;
ALTER TABLE orders ADD COLUMN reference text;
ALTER TABLE orders ADD COLUMN returned integer DEFAULT -1;

CREATE INDEX orders_due ON orders (due_at) WHERE status = 'created' AND due_at IS NOT NULL;
CREATE INDEX orders_returning ON orders (id) WHERE status = 'cancelled' AND returned IS NULL;
CREATE INDEX orders_returned ON orders (sale_id, returned) WHERE status = 'cancelled';

CREATE TABLE payments (
    id          integer PRIMARY KEY NOT NULL,
    callback_id text NOT NULL UNIQUE,
    digest      text NOT NULL,
    at          integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    order_id    integer NOT NULL,
    sale_id     text NOT NULL,
    event       text NOT NULL CHECK (event IN ('succeeded', 'failed')),
    amount      integer NOT NULL,
    currency    text NOT NULL,
    reference   text NOT NULL,
    outcome     text NOT NULL CHECK (outcome IN ('paid', 'failed', 'order_cancelled', 'mismatch', 'paid_already')),
    refund      integer NOT NULL CHECK (refund IN (0, 1)),
    settled_at  integer,
    settled_by  text,
    note        text
) STRICT;

CREATE INDEX payments_order ON payments (order_id);
CREATE INDEX payments_refund ON payments (id) WHERE refund = 1 AND settled_at IS NULL;

-- +goose Down
DROP TABLE payments;
DROP INDEX orders_returned;
DROP INDEX orders_returning;
DROP INDEX orders_due;
ALTER TABLE orders DROP COLUMN returned;
ALTER TABLE orders DROP COLUMN reference;
ALTER TABLE orders DROP COLUMN due_at;
ALTER TABLE sales DROP COLUMN hold_ms;
