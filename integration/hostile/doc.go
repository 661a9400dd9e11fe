// Package hostile sends a node what a broken or hostile client may send, with a
// well-behaved client beside it all the while.
//
// # Inputs
//
// Each input has a number, which is the name of its sub-test:
//
//	 1–9   lengths that lie, silence, drips, other protocols, TLS where there is none
//	10–16  headers and fields: keys, versions, pipelining, client ids, tags, varints
//	17–20  lists without end, topics that cannot be, names that are paths
//	21–31  record batches: counts, lengths, checksums, compression, producers, times
//	32–33  fetches and offsets
//	34–35  commits and groups
//	36–38  what this broker does not serve, and what operators may not ask for
//	39–40  connections that end badly, and too much of what is right
//
// # What must hold
//
// The answer is exactly the one that the input names: an error code of Kafka's, or
// a closed connection with one line in the log. Beside it an idempotent producer
// with acks=all and a consumer group get on: every record is acknowledged and read
// back once, in order. The memory of the process stays within the input's bound
// while it lasts; afterwards connections, goroutines, descriptors and the memory
// of requests are what they were.
//
// # Forms
//
// `go test` runs a short form, with smaller crowds, which asserts no time.
// WEIR_HOSTILE=full (make hostile) runs all of it, and fails too when the
// well-behaved client stood still for so long that it can only have been starved.
// With -v both print a table: what was answered, the client's latencies without
// the input and beside it, and how much memory it took. WEIR_BIN names the binary;
// without it one is built.
//
// # Parts
//
// hostile_test.go runs the inputs, witness_test.go is the well-behaved client,
// process_test.go measures the node, conn_test.go is the attacker's end of a
// connection; the other files hold the inputs.
package hostile
