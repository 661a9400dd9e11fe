package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/weirmq/weir/cmd/weir/client"
)

// version is set by the linker.
var version = "dev"

func main() {
	// The first Ctrl-C or SIGTERM ends the context, the second one the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	// A reader of our output that goes away is an error of the write, not a death.
	signal.Ignore(syscall.SIGPIPE)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the command without the process around it, and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	app := newApp(stdin, stdout, stderr)
	err := app.RunContext(ctx, append([]string{"weir"}, normalise(app, args)...))
	var failed *client.Error
	var coder cli.ExitCoder
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE): // the reader of our output has seen enough
		return 0
	case errors.As(err, &failed):
		if failed.Text != "" {
			fmt.Fprintln(stderr, "weir:", failed.Text)
		}
		return failed.Code
	case errors.As(err, &coder):
		fmt.Fprintln(stderr, "weir:", err)
		return client.ExitUsage
	default:
		fmt.Fprintln(stderr, "weir:", err)
		return client.ExitFailed
	}
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *cli.App {
	env := &client.Env{Stdin: stdin, Stdout: stdout, Stderr: stderr}
	commands := []*cli.Command{startCommand(stdout, stderr), demoCommand(stdout, stderr)}
	commands = append(commands, env.Commands()...)
	commands = append(commands, logCommand(stdout), recoverCommand(stdout, stderr), versionCommand(stdout))
	app := &cli.App{
		Name: "weir", Usage: "a replicated log broker that speaks the Kafka protocol, in one binary",
		UsageText: "weir COMMAND [flags] [arguments]",
		Version:   version, HideVersion: true,
		Commands: commands, Suggest: true, DisableSliceFlagSeparator: true,
		Writer: stdout, ErrWriter: stderr, Reader: stdin,
		ExitErrHandler: func(*cli.Context, error) {}, // run maps errors to exit codes
		Action:         noCommand,
	}
	refuseUnknown(app.Commands)
	app.OnUsageError = usageError
	return app
}

// noCommand runs when the first word names no command.
func noCommand(c *cli.Context) error {
	if c.NArg() == 0 {
		return cli.ShowAppHelp(c)
	}
	return unknownCommand(c.Args().First(), c.App.Commands, "weir --help")
}

// refuseUnknown gives each group of commands an answer to a word it does not
// know, and each command an answer to a wrong flag.
func refuseUnknown(cmds []*cli.Command) {
	for _, cmd := range cmds {
		cmd.OnUsageError = usageError
		if len(cmd.Subcommands) == 0 {
			continue
		}
		group, own := cmd, cmd.Action // what the group does by itself
		cmd.Action = func(c *cli.Context) error {
			switch {
			case c.NArg() == 0 && own != nil:
				return own(c)
			case c.NArg() == 0:
				return cli.ShowSubcommandHelp(c)
			}
			return unknownCommand(c.Args().First(), group.Subcommands, "weir "+group.Name+" --help")
		}
		refuseUnknown(cmd.Subcommands)
	}
}

func unknownCommand(word string, known []*cli.Command, help string) error {
	text := fmt.Sprintf("unknown command %q", word)
	if near := cli.SuggestCommand(known, word); near != "" { // a whole question
		text += ": " + lowerFirst(near)
	}
	return &client.Error{Code: client.ExitUsage, Text: text + "; see " + help}
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// usageError words what the flag library found wrong.
func usageError(c *cli.Context, err error, _ bool) error {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		text = fmt.Sprintf("unknown flag -%s", name)
		if near := cli.SuggestFlag(c.Command.Flags, name, true); near != "" && near != "--help" {
			text += fmt.Sprintf("; did you mean %s?", near)
		}
	}
	where := strings.TrimSpace(c.Command.FullName())
	return &client.Error{Code: client.ExitUsage, Text: fmt.Sprintf("%s (see weir %s)", text, strings.TrimSpace(where+" --help"))}
}

func versionCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version",
		Action: func(*cli.Context) error {
			_, err := fmt.Fprintln(stdout, "weir", version)
			return err
		},
	}
}
