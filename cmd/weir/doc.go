// Command weir is the whole product in one static binary: the broker (start),
// a demonstration cluster (demo), offline tools (log, recover) and the client verbs
// (topic, produce, consume, cluster, bench).
//
// main builds the urfave/cli application, passes the argument vector through
// one normaliser (argv.go) so that flags work before and after positionals,
// and maps errors to exit codes: 0 done, 1 the server or the run failed,
// 2 wrong usage, 3 not found, 4 some items failed, 5 cannot connect,
// 124 timed out, 130 interrupted. Data goes to stdout; progress, warnings and
// errors go to stderr. The client verbs live in cmd/weir/client and know
// nothing of the broker; start and demo know nothing of the client.
package main
