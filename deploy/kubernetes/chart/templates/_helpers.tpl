{{- define "tidetape.selector" -}}
app.kubernetes.io/name: tidetape-server
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tidetape.labels" -}}
{{ include "tidetape.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: tidetape
{{- end }}
