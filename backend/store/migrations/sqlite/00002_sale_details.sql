-- +goose Up

ALTER TABLE sales ADD COLUMN picture text NOT NULL DEFAULT '';
ALTER TABLE sales ADD COLUMN description text NOT NULL DEFAULT '';
