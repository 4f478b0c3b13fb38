// deploy reads files for users as the programs read them that users have: docker-compose.yaml as Compose v2 does, the Dockerfile as
// BuildKit does. `deploy compose FILE` prints the services, `deploy dockerfile FILE` the targets, one a line.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: deploy compose|dockerfile FILE"))
	}
	read := map[string]func(string) ([]string, error){"compose": services, "dockerfile": targets}[os.Args[1]]
	if read == nil {
		fail(fmt.Errorf("%q is neither compose nor dockerfile", os.Args[1]))
	}
	names, err := read(os.Args[2])
	if err != nil {
		fail(fmt.Errorf("%s: %w", os.Args[2], err))
	}
	for _, name := range names {
		fmt.Println(name)
	}
}

func services(file string) ([]string, error) {
	options, err := cli.NewProjectOptions([]string{file}, cli.WithName("check"), cli.WithOsEnv)
	if err != nil {
		return nil, err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return nil, err
	}
	return project.ServiceNames(), nil
}

func targets(file string) ([]string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.Parse(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	for _, warning := range parsed.Warnings {
		return nil, fmt.Errorf("line %d: %s", warning.Location.Start.Line, warning.Short)
	}
	var warned error
	warn := func(rule, description, url, message string, location []parser.Range) {
		line := 0
		if len(location) > 0 {
			line = location[0].Start.Line
		}
		warned = fmt.Errorf("line %d: %s: %s", line, rule, message)
	}
	stages, _, err := instructions.Parse(parsed.AST, linter.New(&linter.Config{Warn: warn}))
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, stage := range stages {
		names = append(names, stage.Name)
	}
	return names, warned
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "deploy:", err)
	os.Exit(1)
}
