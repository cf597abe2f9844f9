package main

import (
	"log/slog"

	"sluice/backend/api"
	"sluice/backend/events/notify"
)

// streamRoom is how many pages of buyers, and how many event streams of sales, a process keeps open at once: no more than half and a quarter of the files that it
// may open, so that purchases and the stores always find the rest. Without that, a crowd of open pages would take every file, and nobody could connect any more, nor be told
// to ask instead. files: 0 when it is not known. each: files that one stream takes.
func streamRoom(files, each int) (pages, streams int) {
	pages, streams = notify.MaxPages, api.MaxStreams
	if files > 0 {
		pages, streams = max(1, min(pages, files/2/each)), max(1, min(streams, files/4/each))
	}
	return pages, streams
}

// roomForStreams is streamRoom for this process, and says so where it is less than it could be.
func roomForStreams(each int, log *slog.Logger) (pages, streams int) {
	files := openFiles()
	pages, streams = streamRoom(files, max(1, each))
	if pages < notify.MaxPages || streams < api.MaxStreams {
		log.Info("few files may be open, so fewer pages can be told of what happens; the others ask", "files", files, "pages", pages, "streams", streams)
	}
	return pages, streams
}
