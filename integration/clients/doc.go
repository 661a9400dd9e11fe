// Package clients runs programs that nobody here wrote against three real weir
// nodes: client libraries of other people through small programs of ours, kcat,
// and Apache Kafka's own tools.
//
// # Journey
//
// journey_test.go takes every client through the same steps: produce without
// and with each codec, lose a partition leader while producing, read everything
// back, read it as a group and commit, join the group again with two members,
// resume from the commit, lose the group's coordinator, go on, commit, leave.
// It fails when an acknowledged record is missing, when an idempotent client's
// record is there twice, when a codec was not used, when a group resumes
// anywhere else than at its commit or leaves a partition uncommitted.
//
// # Programs
//
// A client program is called as
//
//	program produce BROKERS TOPIC CODEC FIRST COUNT
//	program read    BROKERS TOPIC
//	program group   BROKERS TOPIC GROUP
//
// Record n has the key "n" and the value "n:" followed by padding. produce ends
// by itself; read (all partitions from their start, no commits where the client
// allows that) and group (earliest, commits as it goes and when it leaves) end
// in order with SIGTERM. Each prints one JSON object a line:
//
//	{"step":"acked","n":17}
//	{"step":"read","partition":0,"offset":5,"n":17}
//	{"step":"error","error":"…"}
//
// go/, python/ and js/ hold the programs; go/program is what those in Go share.
// go/ and go/confluent are modules of their own, so that the product's module
// stays small.
//
// # Running
//
// make compat installs what can be installed and runs everything. Without it
// (WEIR_COMPAT names the folder of what was installed) the tests skip. A client
// whose runtime is missing is reported as skipped, never as passed.
package clients
