{{/* Labels of an object of a part: (dict "root" $ "part" "api"). Metadata takes "labels" and "annotations" as well. */}}
{{- define "queuer.selector" -}}
app.kubernetes.io/name: queuer
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "queuer.metadata" -}}
{{- $own := include "queuer.selector" . | fromYaml }}
{{- $_ := set $own "app.kubernetes.io/version" .root.Chart.AppVersion }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .root.Release.Service }}
labels:
  {{- merge $own (.labels | default dict) (.root.Values.commonLabels | default dict) | toYaml | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) (.root.Values.commonAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "queuer.image" -}}
{{- with .Values.image -}}
{{- with .registry }}{{ . }}/{{ end }}{{ .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* A pod template, up to what only its caller adds to the spec: (dict "root" $ "part" "api" "own" .Values.api). */}}
{{- define "queuer.pod" -}}
metadata:
  labels:
    {{- merge (include "queuer.selector" . | fromYaml) (.own.podLabels | default dict) | toYaml | nindent 4 }}
  {{- with .own.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  enableServiceLinks: false
  {{- with .own.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- $wanted := merge (pick .root.Values "imagePullSecrets") (pick .own "nodeSelector" "tolerations" "affinity") }}
  {{- range $key, $value := $wanted }}
  {{- with $value }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  securityContext:
    {{- toYaml .root.Values.podSecurityContext | nindent 4 }}
  volumes:
    - {name: tmp, emptyDir: {}}
    {{- with .root.Values.database.ca }}
    {{- if .secretName }}
    - name: database-ca
      secret: {secretName: {{ .secretName }}, items: [{key: {{ .key }}, path: {{ .key }}}]}
    {{- end }}
    {{- end }}
    {{- with .own.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* The container of such a pod, up to what it runs. */}}
{{- define "queuer.container" -}}
name: {{ .part }}
image: {{ include "queuer.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
env:
  {{- include "queuer.env" . | nindent 2 }}
securityContext:
  {{- toYaml .root.Values.securityContext | nindent 2 }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  {{- if .root.Values.database.ca.secretName }}
  - {name: database-ca, mountPath: /etc/queuer/database, readOnly: true}
  {{- end }}
  {{- with .own.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Variables of a container. One of two with the same name would be lost, at once or with the next upgrade. */}}
{{- define "queuer.env" -}}
{{- $all := include "queuer.chartEnv" . | fromYamlArray }}
{{- $names := list }}
{{- range $all }}{{ $names = append $names .name }}{{ end }}
{{- $at := ternary "api" "controller" (eq .part "api") }}
{{- range .own.extraEnv }}
{{- if has .name $names }}
{{- fail (printf "%s.extraEnv repeats %s: set the chart's value that becomes it, and name each variable once" $at .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- concat $all (.own.extraEnv | default list) | toYaml }}
{{- end }}

{{/* What the chart sets. libpq takes from PG* what the database's URL does not say. */}}
{{- define "queuer.chartEnv" -}}
{{- $values := .root.Values }}
{{- $namespace := .root.Release.Namespace }}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- name: QUEUER_DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ $values.database.secretName }}, key: {{ $values.database.secretKey }}}}
- {name: PGSSLMODE, value: {{ $values.database.sslMode | quote }}}
{{- if $values.database.ca.secretName }}
- {name: PGSSLROOTCERT, value: /etc/queuer/database/{{ $values.database.ca.key }}}
{{- else if eq $values.database.sslMode "verify-full" }}
- {name: PGSSLROOTCERT, value: system}
{{- end }}
- {name: QUEUER_LOG_LEVEL, value: {{ $values.logLevel }}}
- {name: QUEUER_LOG_FORMAT, value: {{ $values.logFormat }}}
{{- if eq .part "api" }}
- {name: QUEUER_AUTH, value: kubernetes}
- {name: QUEUER_PORT, value: {{ .own.port | quote }}}
- {name: QUEUER_TOKEN_AUDIENCES, value: {{ join "," .own.audiences | quote }}}
{{- $service := printf "queuer-api.%s" $namespace }}
{{- $names := list "$(POD_IP)" "queuer-api" $service (printf "%s.svc" $service) }}
{{- range list $values.ingress $values.gateway }}{{ if .enabled }}{{ $names = append $names .host }}{{ end }}{{ end }}
- {name: QUEUER_ALLOWED_HOSTS, value: {{ concat $names .own.allowedHosts | compact | join "," | quote }}}
{{- with include "queuer.url" .root }}
- {name: QUEUER_URL, value: {{ . | quote }}}
{{- end }}
{{- else if eq .part "controller" }}
- {name: QUEUER_CONTROLLER_HOST, value: {{ $values.listen | quote }}}
- {name: QUEUER_CONTROLLER_PORT, value: {{ .own.port | quote }}}
- {name: QUEUER_NAMESPACE, value: {{ $namespace }}}
- {name: QUEUER_OPERATORS, value: {{ include "queuer.operators" $values.operators | quote }}}
- {name: QUEUER_IDENTITY, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
{{- end }}
{{- end }}

{{/* User names as a list of a policy's expression. */}}
{{- define "queuer.users" -}}
[{{ range $place, $user := . }}{{ if $place }}, {{ end }}'{{ $user }}'{{ end }}]
{{- end }}

{{/* User names by controller, as QUEUER_OPERATORS has them. */}}
{{- define "queuer.operators" -}}
{{- $pairs := list }}
{{- range $name, $users := . }}{{ range default (list "") $users }}{{ $pairs = append $pairs (printf "%s=%s" $name .) }}{{ end }}{{ end }}
{{- join "," $pairs }}
{{- end }}

{{/* The objects of one shipped file for the release namespace, with its operators: (dict "root" $ "path" …). Labels and annotations are added. */}}
{{- define "queuer.shipped" -}}
{{- $text := .root.Files.Get .path | replace "queuer-system" .root.Release.Namespace }}
{{- $usual := .root.Files.Get "files/operators.yaml" | fromYaml }}
{{- range $name, $users := $usual }}{{ $text = $text | replace (include "queuer.users" $users) (printf "<%s>" $name) }}{{ end }}
{{- range $name, $_ := $usual }}{{ $text = $text | replace (printf "<%s>" $name) (include "queuer.users" (get $.root.Values.operators $name)) }}{{ end }}
{{- range regexSplit "(?m)^---$" $text -1 }}
{{- $object := fromYaml . }}
{{- $own := dict "root" $.root "part" "cluster" "labels" $object.metadata.labels "annotations" $object.metadata.annotations }}
{{- $_ := set $object "metadata" (merge (include "queuer.metadata" $own | fromYaml) $object.metadata) }}
---
{{ toYaml $object }}
{{ end }}
{{- end }}

{{/* The name by which browsers reach the API; empty without ingress and gateway. */}}
{{- define "queuer.host" -}}
{{- if .Values.ingress.enabled }}{{ .Values.ingress.host }}{{ else if .Values.gateway.enabled }}{{ .Values.gateway.host }}{{ end }}
{{- end }}

{{- define "queuer.url" -}}
{{- $host := include "queuer.host" . }}
{{- .Values.api.url | default (ternary (printf "https://%s" $host) "" (ne $host "")) }}
{{- end }}
