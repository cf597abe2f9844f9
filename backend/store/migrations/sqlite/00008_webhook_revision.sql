-- +goose Up

ALTER TABLE webhook_endpoints ADD COLUMN revision integer NOT NULL DEFAULT 0;
