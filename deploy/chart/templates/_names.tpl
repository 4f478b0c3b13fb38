{{- /* What names of namespaced objects begin with, and a hyphen after it; nothing unless a value says so. */ -}}
{{- define "ownergraph.named" -}}
{{- with (index . 0).Values.fullnameOverride }}{{ . }}-{{ end }}{{ index . 1 }}
{{- end }}

{{- /* The name of what there is one of. */ -}}
{{- define "ownergraph.prefix" -}}{{ .Values.fullnameOverride | default "ownergraph" }}{{- end }}

{{- /* Names of what belongs to no namespace. */ -}}
{{- define "ownergraph.global" -}}{{ include "ownergraph.prefix" (index . 0) }}-{{ index . 1 }}{{- end }}

{{- define "ownergraph.ownLabels" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default "ownergraph" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- /* Labels of every object but pods. */ -}}
{{- define "ownergraph.labels" -}}
{{ include "ownergraph.ownLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* What selects the pods of a component. A Deployment's selector cannot change, so this must not: no label of the instance. */ -}}
{{- define "ownergraph.selector" -}}
app.kubernetes.io/name: {{ (index . 0).Values.nameOverride | default "ownergraph" }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- /* Whether certificates identify callers; "true" or nothing. */ -}}
{{- define "ownergraph.clientCertificates" -}}
{{- $tls := .Values.tls -}}
{{- if $tls.enabled -}}
{{- if kindIs "bool" $tls.clientCertificates -}}
{{- if $tls.clientCertificates }}true{{ end -}}
{{- else if not (and (eq $tls.source "certManager") $tls.certManager.issuerRef) -}}true{{- end -}}
{{- end -}}
{{- end }}

{{- /* Whether callers find the service in kube-public; "true" or nothing. */ -}}
{{- define "ownergraph.publishes" -}}{{ if and .Values.tls.enabled .Values.access.publish }}true{{ end }}{{- end }}

{{- /* Whether callers may forward ports in the namespace of the release; "true" or nothing. */ -}}
{{- define "ownergraph.portForward" -}}
{{- $given := .Values.access.portForward -}}
{{- $own := contains "ownergraph" .Release.Namespace -}}
{{- if and (include "ownergraph.publishes" .) (ternary $given $own (kindIs "bool" $given)) }}true{{ end -}}
{{- end }}

{{- /* The name on the graph service's certificate that executors ask for: they reach pods by their addresses. */ -}}
{{- define "ownergraph.serverName" -}}{{ include "ownergraph.named" (list . "graph-service") }}.{{ .Release.Namespace }}.svc{{- end }}

{{- define "ownergraph.anyAddress" -}}{{ if eq .Values.ipFamily "IPv6" }}[::]{{ else }}0.0.0.0{{ end }}{{- end }}

{{- /* Flags of both components for traces. */ -}}
{{- define "ownergraph.traces" -}}
{{- with .Values.traces }}
{{- if .endpoint }}
- --otlp-endpoint={{ .endpoint }}
- --trace-sample={{ .sample }}
{{- if .caConfigMap }}
- --otlp-ca=/etc/ownergraph/traces/ca.crt
{{- end }}
{{- if hasPrefix "http://" .endpoint }}
- --otlp-insecure
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Who reaches the admin ports. */ -}}
{{- define "ownergraph.adminIngress" -}}
- ports:
    - { port: admin, protocol: TCP }
  from:
    # `helm test`.
    - podSelector:
        matchLabels:
          {{- include "ownergraph.selector" (list $ "test") | nindent 10 }}
    {{- with .Values.networkPolicy.monitoring }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- /* Where the pods of both components go; its dot is .Values.networkPolicy. */ -}}
{{- define "ownergraph.commonEgress" -}}
# Names.
- ports:
    - { port: 53, protocol: UDP }
    - { port: 53, protocol: TCP }
# The API server.
- ports:
    {{- range .apiServerPorts }}
    - { port: {{ int . }}, protocol: TCP }
    {{- end }}
  {{- with .apiServer }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- /* The Deployments of the services, as a JSON list. Mode observe grants no work, so it has no executors. */ -}}
{{- define "ownergraph.components" -}}
{{- toJson (ternary (list "graph-service" "executor-service") (list "graph-service") (eq .Values.mode "enforce")) -}}
{{- end -}}
