#!/bin/sh
# Debian's nginx with ngx_lua under OpenResty's name. OpenResty has the modules built in; nginx must load them, with a
# directive in front of "daemon off;".
set -eu

previous=
for argument; do
	shift
	if [ "$previous" = -g ]; then
		argument="load_module /usr/lib/nginx/modules/ndk_http_module.so; load_module /usr/lib/nginx/modules/ngx_http_lua_module.so; $argument"
	fi
	set -- "$@" "$argument"
	previous=$argument
	case $previous in load_module*) previous= ;; esac
done
exec nginx "$@"
