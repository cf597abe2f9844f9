-- +goose Up

-- For the log of a sale.
CREATE INDEX admin_log_sale ON admin_log (sale_id, id) WHERE sale_id <> '';
