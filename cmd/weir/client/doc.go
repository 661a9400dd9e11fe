// Package client holds the client verbs of the weir command: topic, group, produce,
// consume, cluster and bench.
//
// They speak to a cluster as any other program would, through franz-go's kgo
// and kadm, so they double as a proof that an ordinary client works; nothing
// of the broker is imported here. Every connection uses a MetadataMinAge of
// 250 ms, since the library's five seconds hide a fast failover. Verbs write
// data to stdout and everything else to stderr, and return *Error, which
// carries the exit code.
package client
