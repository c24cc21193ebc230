{{/* Labels of an object of a part: (dict "root" $ "part" "api"). Metadata takes "labels" and "annotations" as well. */}}
{{- define "queuer.selector" -}}
app.kubernetes.io/name: queuer
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "queuer.metadata" -}}
labels:
  {{- include "queuer.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  {{- with merge (dict) (.labels | default dict) .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
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

{{/* How every process reaches PostgreSQL. libpq takes what the URL does not say from PG*. */}}
{{- define "queuer.databaseEnv" -}}
- name: QUEUER_DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.database.secretName }}, key: {{ .Values.database.secretKey }}}}
- {name: PGSSLMODE, value: {{ .Values.database.sslMode | quote }}}
{{- if .Values.database.ca.secretName }}
- {name: PGSSLROOTCERT, value: /etc/queuer/database/{{ .Values.database.ca.key }}}
{{- else if eq .Values.database.sslMode "verify-full" }}
- {name: PGSSLROOTCERT, value: system}
{{- end }}
- {name: QUEUER_LOG_LEVEL, value: {{ .Values.logLevel }}}
- {name: QUEUER_LOG_FORMAT, value: {{ .Values.logFormat }}}
{{- end }}

{{- define "queuer.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .Values.database.ca.secretName }}
- {name: database-ca, mountPath: /etc/queuer/database, readOnly: true}
{{- end }}
{{- end }}

{{- define "queuer.volumes" -}}
- {name: tmp, emptyDir: {}}
{{- with .Values.database.ca }}
{{- if .secretName }}
- name: database-ca
  secret: {secretName: {{ .secretName }}, items: [{key: {{ .key }}, path: {{ .key }}}]}
{{- end }}
{{- end }}
{{- end }}

{{/* The name by which browsers reach the API; empty without ingress and gateway. */}}
{{- define "queuer.host" -}}
{{- if .Values.ingress.enabled }}{{ .Values.ingress.host }}{{ else if .Values.gateway.enabled }}{{ .Values.gateway.host }}{{ end }}
{{- end }}

{{- define "queuer.url" -}}
{{- $host := include "queuer.host" . }}
{{- .Values.api.url | default (ternary (printf "https://%s" $host) "" (ne $host "")) }}
{{- end }}
