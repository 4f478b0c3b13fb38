{{- /* What the pods of all components have alike. The dot of most helpers: `root`, `component`, `of` (the values of the component), `secret` (of its
certificate), `token` (whether it identifies itself by one). `account` differs from `component` where components share one. A `reader` only calls the
graph service: it has no certificate, and collection does not wait for it. */ -}}

{{- define "ownergraph.account" -}}
{{- $values := (index . 0).Values -}}
{{- $of := get (dict "graph-service" $values.graphService "executor-service" $values.executorService "audit" $values.audit "console" $values.console) (index . 1) -}}
{{- $of.serviceAccount.name | default (include "ownergraph.named" .) }}
{{- end }}

{{- define "ownergraph.serviceAccount" -}}
{{- $account := .of.serviceAccount -}}
{{- if $account.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "ownergraph.account" (list .root (.account | default .component)) }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "ownergraph.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .account | default .component }}
  {{- with $account.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "ownergraph.image" -}}
{{- $image := .root.Values.image -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .of.image }}
{{- with .of.imageDigest }}@{{ . }}{{ else }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "ownergraph.podMetadata" -}}
labels:
  {{- include "ownergraph.ownLabels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
  {{- with merge (dict) .of.podLabels .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .of.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Probes of the admin port; the dot is its scheme. */ -}}
{{- define "ownergraph.probes" -}}
livenessProbe:
  httpGet:
    path: /livez
    port: admin
    scheme: {{ . }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet:
    path: /readyz
    port: admin
    scheme: {{ . }}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- /* A security context without the fields that a value empties. */ -}}
{{- define "ownergraph.securityContext" -}}
{{- $kept := dict -}}
{{- range $field, $value := . -}}
{{- if not (or (kindIs "invalid" $value) (eq (toString $value) "")) }}{{ $_ := set $kept $field $value }}{{ end -}}
{{- end -}}
{{- with $kept -}}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "ownergraph.mounts" -}}
{{- if .root.Values.tls.enabled }}
- name: tls
  mountPath: /etc/ownergraph/tls
  readOnly: true
{{- if .token }}
- name: token
  mountPath: /var/run/secrets/ownergraph
  readOnly: true
{{- end }}
{{- end }}
{{- if and (not .reader) .root.Values.traces.endpoint .root.Values.traces.caConfigMap }}
- name: traces
  mountPath: /etc/ownergraph/traces
  readOnly: true
{{- end }}
{{- with .of.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ownergraph.volumes" -}}
{{- if .root.Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ .secret }}
    defaultMode: 288 # 0440
    {{- if .reader }}
    items: [{ key: ca.crt, path: ca.crt }]
    {{- end }}
{{- if .token }}
# The token that identifies the pod to the graph service. It is bound to this pod, and the API server does not accept it.
- name: token
  projected:
    defaultMode: 288 # 0440
    sources:
      - serviceAccountToken:
          path: token
          audience: {{ .root.Values.tls.tokenAudience }}
          expirationSeconds: 3600
{{- end }}
{{- end }}
{{- if and (not .reader) .root.Values.traces.endpoint .root.Values.traces.caConfigMap }}
- name: traces
  configMap:
    name: {{ .root.Values.traces.caConfigMap }}
{{- end }}
{{- with .of.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ownergraph.pod" -}}
{{- $of := .of -}}
serviceAccountName: {{ include "ownergraph.account" (list .root (.account | default .component)) }}
{{- with include "ownergraph.securityContext" .root.Values.podSecurityContext }}
{{ . }}
{{- end }}
{{- if and .root.Values.priorityClass.name (not .reader) }}
priorityClassName: {{ .root.Values.priorityClass.name }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if kindIs "slice" $of.topologySpreadConstraints }}
topologySpreadConstraints: {{ toJson $of.topologySpreadConstraints }}
{{- else }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    # Pods of one version: in an update the old pods are about to stop.
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:
        {{- include "ownergraph.selector" (list $.root $.component) | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}
