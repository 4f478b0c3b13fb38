// Headlamp with Ownergraph: guards on the map, and on each object the links to its pages in the console.

import {
  ConfigStore,
  K8s,
  registerDetailsViewSection,
  registerMapSource,
  registerPluginSettings,
} from "@kinvolk/headlamp-plugin/lib";
import { Link, NameValueTable, SectionBox } from "@kinvolk/headlamp-plugin/lib/CommonComponents";
import type { KubeObject } from "@kinvolk/headlamp-plugin/lib/k8s/cluster";
import TextField from "@mui/material/TextField";
import Typography from "@mui/material/Typography";
import { useMemo } from "react";
import { consoleUrl } from "./url";

const NAME = "ownergraph";

interface Config {
  address?: string;
}
const store = new ConfigStore<Config>(NAME);
const useConfig = store.useConfig();

function Settings({ data, onDataChange }: { data?: Config; onDataChange?: (data: Config) => void }) {
  return (
    <TextField
      label="Address that kubectl ownergraph console prints, with its token"
      value={data?.address ?? ""}
      onChange={(event) => onDataChange?.({ address: event.target.value })}
      fullWidth
    />
  );
}

function Section({ resource }: { resource: KubeObject }) {
  const { address } = useConfig() ?? {};
  const { kind, metadata } = resource;
  const group = resource.jsonData?.apiVersion?.includes("/") ? resource.jsonData.apiVersion.split("/")[0] : "";
  const pages = [
    ["object", "Graph, and why it stays or goes"],
    ["plan", "What a deletion would do"],
    ["cascade", "How its deletion goes on"],
  ].map(([page, title]) => ({ page, title, url: consoleUrl(address, page, { kind, group, metadata }) }));
  return (
    <SectionBox title="Ownergraph">
      {pages.every(({ url }) => url !== undefined) ? (
        <NameValueTable
          rows={pages.map(({ page, title, url }) => ({
            name: page,
            value: (
              <a href={url} target="_blank" rel="noreferrer">
                {title}
              </a>
            ),
          }))}
        />
      ) : (
        <Typography>
          Start kubectl ownergraph console, and put the address that it prints into the settings of this plug-in.{" "}
          <Link routeName="plugins">Plug-ins</Link>
        </Typography>
      )}
    </SectionBox>
  );
}

const guard = (kind: string, plural: string) => ({
  plural,
  label: `${kind}s`,
  type: K8s.crd.makeCustomResourceClass({
    apiInfo: [{ group: "ownergraph.dev", version: "v1alpha1" }],
    kind,
    pluralName: plural,
    singularName: kind.toLowerCase(),
    isNamespaced: false,
  }),
});
const GUARDS = [
  guard("Pause", "pauses"),
  guard("Protection", "protections"),
  guard("Approval", "approvals"),
  guard("Gate", "gates"),
  guard("Budget", "budgets"),
];

registerMapSource({
  id: NAME,
  label: "Ownergraph guards",
  sources: GUARDS.map(({ plural, label, type }) => ({
    id: `${NAME}-${plural}`,
    label,
    useData() {
      const [guards] = type.useList();
      // A guard holds work back: the map shows it as a warning, and its reason below the name.
      return useMemo(
        () =>
          guards && {
            nodes: guards.map((guard) => ({
              id: guard.metadata.uid,
              kubeObject: guard,
              subtitle: guard.jsonData?.spec?.reason,
              status: "warning" as const,
            })),
            edges: [],
          },
        [guards],
      );
    },
  })),
});
registerDetailsViewSection(({ resource }) => (resource ? <Section resource={resource} /> : null));
registerPluginSettings(NAME, Settings, true);
