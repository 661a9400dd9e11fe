// Command run is the program behind scripts/chaos: its flags, the namespaces that it
// puts itself into, and what it prints. Everything else is package chaos.
package main
