package assemble

import (
	"log/slog"

	"sluice/backend/api"
	"sluice/backend/events/notify"
	"sluice/internal/listen"
)

// streamRoom returns the maximum numbers of open pages of buyers and of event streams of sales. The pages use at most
// half of the limit of open files and the streams at most a quarter, so that purchases and the stores always have
// descriptors. files is that limit, or 0 if it is unknown. each is the number of files per stream.
func streamRoom(files, each int) (pages, streams int) {
	pages, streams = notify.MaxPages, api.MaxStreams
	if files > 0 {
		pages, streams = max(1, min(pages, files/2/each)), max(1, min(streams, files/4/each))
	}
	return pages, streams
}

// roomForStreams is streamRoom for this process. It logs a limit below the default.
func roomForStreams(each int, log *slog.Logger) (pages, streams int) {
	files := listen.OpenFiles()
	pages, streams = streamRoom(files, max(1, each))
	if pages < notify.MaxPages || streams < api.MaxStreams {
		log.Info("the limit of open files is low (ulimit -n): fewer pages receive events, the others poll",
			"files", files, "pages", pages, "streams", streams)
	}
	return pages, streams
}
