#!/bin/sh
# The entry point of the published image of PostgreSQL, as far as docker-compose.yml relies on it: started as root, it
# changes the owner of the volume to postgres and becomes postgres; in an empty volume it creates a database and its
# user, with a server that listens on its socket alone.
set -eu

if [ "$(id -u)" = 0 ]; then
	mkdir -p "$PGDATA" /run/postgresql
	chmod 700 "$PGDATA"
	chmod 3775 /run/postgresql
	find "$PGDATA" /run/postgresql ! -user postgres -exec chown postgres:postgres {} +
	exec /usr/bin/setpriv --reuid postgres --regid postgres --init-groups "$0" "$@"
fi

if [ ! -s "$PGDATA/PG_VERSION" ]; then
	: "${POSTGRES_PASSWORD:?}" "${POSTGRES_USER:=postgres}" "${POSTGRES_DB:=$POSTGRES_USER}"
	printf '%s\n' "$POSTGRES_PASSWORD" >/tmp/password
	# shellcheck disable=SC2086 # the arguments are words
	initdb --username "$POSTGRES_USER" --pwfile /tmp/password --locale C.UTF-8 ${POSTGRES_INITDB_ARGS:-}
	rm /tmp/password
	echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
	pg_ctl -w -o "-c listen_addresses=''" start
	[ "$POSTGRES_DB" = postgres ] || psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" -d postgres -c "CREATE DATABASE \"$POSTGRES_DB\""
	pg_ctl -w -m fast stop
fi

exec "$@" -c listen_addresses='*'
