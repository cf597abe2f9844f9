-- +goose Up

CREATE TABLE rehearsal_reports (
    id        text PRIMARY KEY NOT NULL,
    sale_id   text NOT NULL,
    verdict   text NOT NULL,
    stored_at integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS integer)),
    stored_by text NOT NULL,
    report    text NOT NULL
) STRICT;
