package main

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// The flag library stops parsing at the first positional, so that
// "topic create foo -p 3" would read -p as a second topic. Users of every
// other tool of the field write flags last. normalise puts an argument vector
// into the one order the library understands, for every command at once:
//
//	command path, then flags, then "--", then positionals
//
// It looks up in the command tree which flags take a value. A flag given
// before its command moves behind it. Clusters of short flags (-ek) and glued
// values (-p3) are split. What it does not know it leaves in place, for the
// library to refuse by name.

// flagTable says of each flag name of a command whether it takes a value.
type flagTable map[string]bool

func tableOf(lists ...[]cli.Flag) flagTable {
	t := flagTable{}
	for _, flags := range lists {
		for _, f := range flags {
			_, isBool := f.(*cli.BoolFlag)
			for _, name := range f.Names() {
				t[name] = !isBool
			}
		}
	}
	return t
}

// allFlags is the table of every flag of every command below cmds. Where
// commands disagree about a name, taking a value wins: only flags written
// before the command are judged by it.
func allFlags(global []cli.Flag, cmds []*cli.Command) flagTable {
	t := tableOf(global)
	for _, c := range cmds {
		for name, takes := range allFlags(c.Flags, c.Subcommands) {
			t[name] = t[name] || takes
		}
	}
	return t
}

func findCommand(cmds []*cli.Command, name string) *cli.Command {
	for _, c := range cmds {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// normalise reorders args (without the program name) for app.
func normalise(app *cli.App, args []string) []string {
	n := normaliser{cmds: app.Commands, table: allFlags(app.Flags, app.Commands), before: true}
	for len(args) > 0 {
		args = n.step(args)
	}
	out := append(n.path, n.flags...)
	if len(n.positionals) > 0 {
		out = append(append(out, "--"), n.positionals...)
	}
	return out
}

// normaliser is the state of one pass over an argument vector.
type normaliser struct {
	cmds   []*cli.Command // candidates for the next word of the path
	table  flagTable
	before bool // no positional has been seen, so a word may still name a command

	path, flags, positionals []string
}

// step takes the next argument, and its value if it has one, and returns the rest.
func (n *normaliser) step(args []string) []string {
	arg, rest := args[0], args[1:]
	switch {
	case arg == "--":
		n.positionals = append(n.positionals, rest...)
		return nil
	case len(arg) > 1 && arg[0] == '-':
		return n.flag(arg, rest)
	case n.before:
		if c := findCommand(n.cmds, arg); c != nil {
			n.path = append(n.path, arg)
			n.cmds = c.Subcommands
			if len(c.Subcommands) == 0 {
				n.table, n.before = tableOf(c.Flags), false
			}
			return rest
		}
	}
	n.before = false
	n.positionals = append(n.positionals, arg)
	return rest
}

func (n *normaliser) flag(arg string, rest []string) []string {
	name, _, glued := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	takes, known := n.table[name]
	switch {
	case glued || (known && !takes):
		n.flags = append(n.flags, arg)
		return rest
	case known:
		n.flags = append(n.flags, arg)
		if len(rest) > 0 {
			n.flags = append(n.flags, rest[0])
			rest = rest[1:]
		}
		return rest
	case !strings.HasPrefix(arg, "--"):
		n.cluster(arg)
		return rest
	}
	n.flags = append(n.flags, arg)
	return rest
}

// cluster splits -ek into -e -k and -p3 into -p 3. If a letter is not a known
// short flag the argument stays whole.
func (n *normaliser) cluster(arg string) {
	var out []string
	for i := 1; i < len(arg); i++ {
		letter := arg[i : i+1]
		takes, known := n.table[letter]
		if !known {
			n.flags = append(n.flags, arg)
			return
		}
		out = append(out, "-"+letter)
		if takes {
			if value := arg[i+1:]; value != "" {
				out = append(out, value)
			}
			break
		}
	}
	n.flags = append(n.flags, out...)
}
